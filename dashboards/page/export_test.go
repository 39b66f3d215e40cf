package page

// Actions are all actions.
func Actions() map[string]*action { return actions }
