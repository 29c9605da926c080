// Package process runs one program at a time as a part of the lab: it starts it, knows when it is ready, notices when
// it ends, keeps its log, and leaves nothing of it behind. Which program, and what ready means, is its caller's.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// probeInterval is the pause between two tries of a readiness probe. A program that listens on a socket tells
	// nobody that it does: asking again is the only way to know, and this is the only place in the lab that asks.
	probeInterval = 25 * time.Millisecond
	// probeTimeout is how long one try may take, so that a program that died in the middle of one is noticed.
	probeTimeout = 2 * time.Second
	// stopGrace is how long a program may take to end after SIGTERM when the caller's context has no deadline.
	stopGrace = 15 * time.Second
	// pipeGrace is how long a child that left a dead program's process group may hold its output open.
	pipeGrace = 2 * time.Second
	// tailLines is how much of its log an error about a program carries.
	tailLines = 25
)

// ErrRunning is returned by Start for a program that runs already.
var ErrRunning = errors.New("runs already")

// Options say what to run. Name, Path and Log are required.
type Options struct {
	Name string   // what messages call it, such as "hub-etcd"
	Path string   // the program
	Args []string // without the program's name
	Env  []string // the whole environment, as KEY=value; nothing is inherited
	Dir  string   // working directory; empty for the caller's
	Log  string   // file that its output is appended to

	// Ready is asked until it returns nil: then the program is ready. Nil means ready as soon as it runs.
	Ready func(ctx context.Context) error
}

// Process is one program, which may be started and stopped many times. Its methods may be called by many goroutines.
type Process struct {
	options Options
	log     *logFile

	turn sync.Mutex // held by Start, Stop and Kill for as long as they take

	mu  sync.Mutex // guards run
	run *run       // the present or last life
}

// run is one life of the program.
type run struct {
	cmd    *exec.Cmd
	done   chan struct{} // closed when the program has ended and its output is in the log
	err    error         // how it ended; readable when done is closed
	asked  chan struct{} // closed when its end was asked for
	asking sync.Once
}

// New describes a program and opens its log; it starts nothing. Close ends it.
func New(options Options) (*Process, error) {
	log, err := openLog(options.Log)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", options.Name, err)
	}
	return &Process{options: options, log: log}, nil
}

// Name is the name that messages call it by.
func (p *Process) Name() string { return p.options.Name }

// Dir is the program's working directory, empty for the lab's own.
func (p *Process) Dir() string { return p.options.Dir }

// LogPath is the file that holds the output of all its lives.
func (p *Process) LogPath() string { return p.options.Log }

// Path is the program.
func (p *Process) Path() string { return p.options.Path }

// Args are the arguments that it is started with.
func (p *Process) Args() []string { return p.options.Args }

// Start runs the program and returns when it is ready. A program that ends before, or is not ready when ctx ends, is an
// error that carries the end of its log, and does not run any more.
func (p *Process) Start(ctx context.Context) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if p.Running() {
		return fmt.Errorf("start %s: %w", p.options.Name, ErrRunning)
	}
	p.log.mark()
	r, err := p.launch()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.options.Name, err)
	}
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	if err := p.await(ctx, r); err != nil {
		r.end(syscall.SIGKILL)
		<-r.done
		return fmt.Errorf("start %s: %w%s", p.options.Name, err, p.quote())
	}
	return nil
}

func (p *Process) launch() (*run, error) {
	output, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(p.options.Path, p.options.Args...) //nolint:noctx // it lives until Stop or Kill, not as long as Start
	cmd.Env, cmd.Dir = p.options.Env, p.options.Dir
	cmd.Stdout, cmd.Stderr = input, input
	cmd.SysProcAttr = attributes()
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	err = cmd.Start()
	_ = input.Close() // the program has its own
	if err != nil {
		_ = output.Close()
		return nil, err
	}
	r := &run{cmd: cmd, done: make(chan struct{}), asked: make(chan struct{})}
	go func() { // ends with the program; Stop, Kill and a failed Start wait for it
		defer close(r.done)
		r.err = r.copyOutput(p.log, output)
	}()
	return r, nil
}

// copyOutput copies the program's output to its log until the program and all its children have ended.
func (r *run) copyOutput(log *logFile, output *os.File) error {
	defer func() { _ = output.Close() }() // of a pipe that was only read
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(log, output) // ends with the output, or when the program is gone and a stray child holds it open
	}()
	err := r.cmd.Wait()
	r.sweep()
	_ = output.SetReadDeadline(time.Now().Add(pipeGrace)) // pipes have deadlines
	<-copied
	return err
}

// await asks the probe until it agrees, the program ends, or ctx does.
func (p *Process) await(ctx context.Context, r *run) error {
	if p.options.Ready == nil {
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := errors.New("never asked")
	for {
		select {
		case <-r.done:
			return fmt.Errorf("it ended before it was ready: %w", endError(r.err))
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w (last answer: %w)", ctx.Err(), last)
		case <-timer.C:
		}
		err := p.ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		timer.Reset(probeInterval)
	}
}

func (p *Process) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.options.Ready(ctx)
}

// Stop asks the program to end (SIGTERM), waits until it has, and kills it when ctx ends or it takes too long, which is
// an error. Stopping one that does not run is none.
func (p *Process) Stop(ctx context.Context) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	r := p.current()
	if r == nil || r.over() {
		return nil
	}
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, stopGrace)
		defer cancel()
	}
	r.end(syscall.SIGTERM)
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		r.end(syscall.SIGKILL)
		<-r.done
		return fmt.Errorf("stop %s: killed after SIGTERM went unheard: %w%s", p.options.Name, ctx.Err(), p.quote())
	}
}

// Kill ends the program and its children at once (SIGKILL) and waits until it has ended.
func (p *Process) Kill() {
	p.turn.Lock()
	defer p.turn.Unlock()
	if r := p.current(); r != nil && !r.over() {
		r.end(syscall.SIGKILL)
		<-r.done
	}
}

// Restart stops the program and starts it again with the same arguments.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return p.Start(ctx)
}

// Close kills the program if it runs and closes its log. The Process cannot be used after.
func (p *Process) Close() error {
	p.Kill()
	return p.log.close()
}

// Pid is the process id of the program's present or last life, 0 before its first.
func (p *Process) Pid() int {
	if r := p.current(); r != nil {
		return r.cmd.Process.Pid
	}
	return 0
}

// Running tells whether the program runs.
func (p *Process) Running() bool {
	r := p.current()
	return r != nil && !r.over()
}

// Done is closed when the program's present life has ended. It is nil, which blocks for ever, before the first.
func (p *Process) Done() <-chan struct{} {
	if r := p.current(); r != nil {
		return r.done
	}
	return nil
}

// Err tells how the program's last life ended when nobody asked it to: nil while it runs and when it was stopped.
func (p *Process) Err() error {
	r := p.current()
	if r == nil || !r.over() {
		return nil
	}
	select {
	case <-r.asked:
		return nil
	default:
		return fmt.Errorf("%s ended by itself: %w%s", p.options.Name, endError(r.err), p.quote())
	}
}

// ExitCode is the code that the program's last life ended with, -1 while it runs or when a signal ended it.
func (p *Process) ExitCode() int {
	r := p.current()
	if r == nil || !r.over() {
		return -1
	}
	return r.cmd.ProcessState.ExitCode()
}

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (p *Process) quote() string {
	tail := p.Tail(tailLines)
	if tail == "" {
		return fmt.Sprintf("\n(%s is empty)", p.options.Log)
	}
	return fmt.Sprintf("\n--- end of %s\n%s---", p.options.Log, tail)
}

func (r *run) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// end signals the program; SIGKILL goes to its whole process group.
func (r *run) end(signal syscall.Signal) {
	r.asking.Do(func() { close(r.asked) })
	if signal == syscall.SIGKILL {
		r.sweep()
		return
	}
	// The error is that the program has ended already, which the caller is about to notice.
	_ = r.cmd.Process.Signal(signal)
}

// sweep kills what is left of the program's process group. There being nothing left is the usual answer.
func (r *run) sweep() { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }

func endError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// FindProgram returns the path of a program of the operating system.
func FindProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("program %s is not installed: %w", name, os.ErrNotExist)
	}
	return path, err
}
