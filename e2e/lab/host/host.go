// Package host is this machine as one lab uses it: a folder, ports, programs and links. It owns everything that it
// gives out: closing it leaves nothing behind.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// startTries is how often a program is started on other ports when another program took its own.
const startTries = 4

// Options say where a host lives.
type Options struct {
	Dir  string // folder for everything, which must be empty or not exist; the empty string for a new one
	Keep bool   // whether the folder outlives Close
}

// Host owns what one lab has on this machine. Its methods may be called by many goroutines.
type Host struct {
	dir   string
	keep  bool
	lock  *os.File
	ports port.Allocator

	mu        sync.Mutex // guards all below
	processes []*process.Process
	links     []*link.Link
	names     map[string]int
}

// Program describes what Launch starts.
type Program struct {
	Name  string   // unique in the lab, such as "hub-etcd"; names its log and its folder too
	Path  string   // the executable
	Env   []string // besides PATH, HOME and TMPDIR
	Ports int      // how many ports it listens on
	// Args and Ready are given the ports. Ready may be nil.
	Args  func(ports []int) []string
	Ready func(ports []int) func(context.Context) error
}

// ErrOccupied means that a folder that a lab was to have holds something, which the end of the lab would remove.
var ErrOccupied = errors.New("it is not empty")

// New makes the host's folder. When it fails, it leaves none that it made for want of a name: nobody would look for it.
func New(options Options) (*Host, error) {
	dir, err := folder(options.Dir)
	if err != nil {
		return nil, fmt.Errorf("folder of the lab: %w", err)
	}
	h := &Host{dir: dir, keep: options.Keep, names: make(map[string]int)}
	if err := h.furnish(); err != nil {
		if options.Dir == "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return nil, err
	}
	return h, nil
}

// furnish makes what every host's folder has in it. The lock comes first: what is killed after that is found by the next.
func (h *Host) furnish() error {
	if _, err := h.Folder(); err != nil {
		return err
	}
	var err error
	if h.lock, err = lock(h.dir); err != nil {
		return err
	}
	for _, folder := range []string{"logs", "tmp"} {
		if _, err := h.Folder(folder); err != nil {
			_ = h.lock.Close() // which unlocks it
			return err
		}
	}
	return nil
}

// folder is where the host lives: what was asked for, or a new one.
func folder(asked string) (string, error) {
	if asked == "" {
		removeAbandoned()
		return os.MkdirTemp("", prefix)
	}
	entries, err := os.ReadDir(asked)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("%s: %w", asked, ErrOccupied)
	}
	return filepath.Abs(asked)
}

// Dir is the host's folder.
func (h *Host) Dir() string { return h.dir }

// Logs is the folder of the programs' logs.
func (h *Host) Logs() string { return filepath.Join(h.dir, "logs") }

// Folder makes a folder inside the host's.
func (h *Host) Folder(path ...string) (string, error) {
	dir := filepath.Join(append([]string{h.dir}, path...)...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder of the lab: %w", err)
	}
	return dir, nil
}

// Write puts a file, readable by its owner only, into the host's folder and returns its path.
func (h *Host) Write(name string, data []byte) (string, error) {
	path := filepath.Join(h.dir, name)
	if _, err := h.Folder(filepath.Dir(name)); err != nil {
		return "", err
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("file of the lab: %w", err)
	}
	return path, nil
}

// Unique returns the name, with a number when it was given out before.
func (h *Host) Unique(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[name]++
	if n := h.names[name]; n > 1 {
		return fmt.Sprintf("%s-%d", name, n)
	}
	return name
}

// Port returns a free port, which the host holds for the caller until Close.
func (h *Host) Port() (int, error) { return h.ports.Free() }

// Define makes a process of a program on ports that the host holds for it, and starts nothing.
func (h *Host) Define(program Program) (*process.Process, []int, error) {
	ports := make([]int, program.Ports)
	for i := range ports {
		var err error
		if ports[i], err = h.ports.Free(); err != nil {
			return nil, nil, err
		}
	}
	dir, err := h.Folder("run", program.Name)
	if err != nil {
		return nil, nil, err
	}
	options := process.Options{
		Name: program.Name, Path: program.Path, Args: program.Args(ports), Dir: dir,
		Env: append(h.environment(), program.Env...),
		Log: filepath.Join(h.Logs(), program.Name+".log"),
	}
	if program.Ready != nil {
		options.Ready = program.Ready(ports)
	}
	p, err := process.New(options)
	if err != nil {
		return nil, nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.processes = append(h.processes, p)
	return p, ports, nil
}

// Launch starts a program on free ports and returns when it is ready. When another program takes one of the ports all the
// same, it tries others.
func (h *Host) Launch(ctx context.Context, program Program) (*process.Process, []int, error) {
	for try := 1; ; try++ {
		p, ports, err := h.Define(program)
		if err != nil {
			return nil, nil, err
		}
		err = p.Start(ctx)
		if err == nil {
			return p, ports, nil
		}
		if try == startTries || !strings.Contains(err.Error(), "address already in use") {
			return nil, nil, err
		}
		h.forget(p)
	}
}

// Link lays a link to a target, a host:port.
func (h *Host) Link(ctx context.Context, name, target string) (*link.Link, error) {
	l, err := link.New(ctx, name, target)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links = append(h.links, l)
	return l, nil
}

// Processes are all that were defined, in that order.
func (h *Host) Processes() []*process.Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.processes)
}

// Close kills the programs, closes the links, and removes the folder unless it is to be kept. Programs whose ending
// matters are to be stopped before: what they have on this host is about to be thrown away.
func (h *Host) Close() error {
	h.mu.Lock()
	processes, links := h.processes, h.links
	h.processes, h.links = nil, nil
	h.mu.Unlock()
	var failures []error
	for _, l := range links {
		failures = append(failures, l.Close())
	}
	// The last started goes first: it is the one that would complain that others are gone.
	for _, p := range slices.Backward(processes) {
		failures = append(failures, p.Close())
	}
	if !h.keep {
		failures = append(failures, os.RemoveAll(h.dir))
	}
	failures = append(failures, h.ports.Close())
	_ = h.lock.Close() // which unlocks it, and fails only when that was done before
	return errors.Join(failures...)
}

func (h *Host) forget(gone *process.Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.processes = slices.DeleteFunc(h.processes, func(p *process.Process) bool { return p == gone })
	_ = gone.Close() // of a log that was only written to
}

// environment is what every program gets. Nothing else of the caller's reaches it, so that a lab is the same for all.
func (h *Host) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "TMPDIR=" + filepath.Join(h.dir, "tmp")}
}
