package spokes

// Agents returns how many agents anything is kept about.
func (s *Spokes) Agents() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spokes)
}
