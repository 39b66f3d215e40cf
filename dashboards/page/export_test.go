package page

// Actions are all that can be changed.
func Actions() map[string]*action { return actions }
