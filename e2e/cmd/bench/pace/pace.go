// Package pace asks again and again for a while: one question after the other, or several at a time. What is asked is the
// caller's.
package pace

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// OneByOne does something for as long as a duration says, once at the least, and returns how long each time took. The last
// time is not cut short.
func OneByOne(ctx context.Context, d time.Duration, do func(context.Context) error) ([]time.Duration, error) {
	var times []time.Duration
	for end := time.Now().Add(d); len(times) == 0 || time.Now().Before(end); {
		began := time.Now()
		if err := do(ctx); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}

// AtOnce is OneByOne by several workers at once, and returns how often something was done.
func AtOnce(ctx context.Context, workers int, d time.Duration, do func(context.Context) error) (int, error) {
	var done atomic.Int64
	work, ctx := errgroup.WithContext(ctx)
	for range workers {
		work.Go(func() error {
			times, err := OneByOne(ctx, d, do)
			done.Add(int64(len(times)))
			return err
		})
	}
	err := work.Wait()
	return int(done.Load()), err
}

// Meanwhile does something over and over until it is stopped, which waits for the last time to end and returns the first
// error that was met before.
func Meanwhile(ctx context.Context, do func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { // stop waits for it
		var err error
		for err == nil && ctx.Err() == nil {
			err = do(ctx)
		}
		if ctx.Err() != nil {
			err = nil // what was cut short by stop is no failure
		}
		ended <- err
	}()
	return func() error {
		cancel()
		return <-ended
	}
}
