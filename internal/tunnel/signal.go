package tunnel

// signal tells one goroutine that something has changed. It has a value from then on until that goroutine takes it.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) give() {
	select {
	case s <- struct{}{}:
	default: // it has one to take
	}
}
