package page

// Actions are all that can be changed.
func Actions() map[string]*action { return actions }

// Viewers is how many look.
func (p *Page) Viewers() int {
	p.reader.mu.Lock()
	defer p.reader.mu.Unlock()
	return len(p.reader.viewers)
}
