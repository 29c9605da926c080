package converge

// sparse is a map that takes no memory while it is empty. There are thousands of peers with several facets each, and most of
// them have nothing to do most of the time. The zero value is empty; it is read as any map is.
type sparse[K comparable, V any] map[K]V

// set sets the value of a key.
func (m *sparse[K, V]) set(k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}

// remove removes a key.
func (m *sparse[K, V]) remove(k K) {
	delete(*m, k)
	if len(*m) == 0 {
		*m = nil
	}
}
