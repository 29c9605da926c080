package glob

// Used returns how many steps it took so far.
func (b *Budget) Used() int { return b.used }
