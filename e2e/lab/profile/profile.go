// Package profile asks a Go program what it holds, by the endpoint of its profiles (net/http/pprof).
package profile

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
)

// Usage is what a program holds.
type Usage struct {
	Goroutines int
	// Bytes are those of objects that are in use after a garbage collection, and of stacks. The kernel counts more: what was freed
	// is not given back at once.
	Bytes int64
}

// collections is how often garbage is collected first: what a pool gave up goes with the second.
const collections = 2

// Read returns the usage of the program whose profiles are at an address, host:port.
func Read(ctx context.Context, address string) (Usage, error) {
	var heap, goroutines string
	var err error
	for range collections {
		if heap, err = get(ctx, address, "heap?gc=1&debug=1"); err != nil {
			return Usage{}, err
		}
	}
	if goroutines, err = get(ctx, address, "goroutine?debug=1"); err != nil {
		return Usage{}, err
	}
	count, err := find(goroutines, `^goroutine profile: total (\d+)\n`)
	if err != nil {
		return Usage{}, err
	}
	objects, err := find(heap, `\n# HeapAlloc = (\d+)\n`)
	if err != nil {
		return Usage{}, err
	}
	stacks, err := find(heap, `\n# Stack = (\d+) / \d+\n`)
	return Usage{Goroutines: int(count), Bytes: objects + stacks}, err
}

func get(ctx context.Context, address, which string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/pprof/"+which, http.NoBody)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("profile: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("profile: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("profile: %s: %s", response.Status, text)
	}
	return string(text), nil
}

func find(text, expression string) (int64, error) {
	match := regexp.MustCompile(expression).FindStringSubmatch(text)
	if match == nil {
		return 0, fmt.Errorf("profile: nothing like %q in it", expression)
	}
	return strconv.ParseInt(match[1], 10, 64)
}
