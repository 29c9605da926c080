package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	healthPath = "/healthz"
	readyPath  = "/readyz"

	// Kubernetes gives a probe one second: a check that hangs must not hide the results of the others.
	checkTimeout = 900 * time.Millisecond
)

// Check is one thing that must hold before the program is of use.
type Check struct {
	// Name is a word or two that an operator understands: "caches", "connection".
	Name string
	// Ready returns nil when it holds and otherwise says why not. It is asked at every probe, maybe several times at
	// once, and should answer from memory; it must return when the context ends.
	Ready func(ctx context.Context) error
}

// When is a check that answers at once, from memory.
func When(name string, ready func() error) Check {
	return Check{Name: name, Ready: func(context.Context) error { return ready() }}
}

// Once is a check of whether something ever held. It is for what a program keeps when its source goes away.
func Once(name string, ready func() error) Check {
	var was atomic.Bool
	return When(name, func() error {
		if was.Load() {
			return nil
		}
		err := ready()
		was.Store(err == nil)
		return err
	})
}

// healthMux answers whether the process lives and whether it is ready. Being alive depends on nothing: a program that is
// cut off from its peer is not mended by a restart.
func healthMux(checks []Check) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, r *http.Request) {
		status, body := readiness(r.Context(), checks)
		answer(w, status, body)
	})
	return mux
}

// readiness asks all checks at once, so that the answer names everything that is missing, in time.
func readiness(ctx context.Context, checks []Check) (status int, body string) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	problems := make([]error, len(checks))
	var asked sync.WaitGroup
	for i, check := range checks {
		asked.Go(func() { problems[i] = check.Ready(ctx) })
	}
	asked.Wait()

	var lines strings.Builder
	for i, check := range checks {
		if problems[i] != nil {
			fmt.Fprintf(&lines, "%s: not ready: %v\n", check.Name, problems[i])
		} else {
			fmt.Fprintf(&lines, "%s: ready\n", check.Name)
		}
	}
	if errors.Join(problems...) != nil {
		return http.StatusServiceUnavailable, lines.String()
	}
	return http.StatusOK, lines.String() + "ok\n"
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // a prober that hung up needs no answer
}
