package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// polite ends when it is asked to, and leaves a child behind whose pid it writes.
const polite = `trap 'echo bye; exit 0' TERM; sleep 1000 & echo "child $!"; echo "hello $GREETING"; wait`

// deaf does not end when it is asked to.
const deaf = `trap '' TERM; echo hello; while :; do sleep 1000; done`

func shell(t *testing.T, script string, change ...func(*process.Options)) *process.Process {
	t.Helper()
	options := process.Options{
		Name: "shell", Path: "/bin/sh", Args: []string{"-c", script},
		Env: []string{"PATH=" + os.Getenv("PATH"), "GREETING=world"},
		Log: filepath.Join(t.TempDir(), "shell.log"),
	}
	for _, c := range change {
		c(&options)
	}
	p, err := process.New(options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestStopAsksAndLeavesNoChildBehind(t *testing.T) {
	p := shell(t, polite)
	require.Zero(t, p.Pid())
	require.NoError(t, p.Start(t.Context()))
	require.NoError(t, p.WaitLog(t.Context(), "hello world"))
	require.True(t, p.Running())
	child := childOf(t, p)

	require.NoError(t, p.Stop(t.Context()))
	require.False(t, p.Running())
	require.Contains(t, p.Tail(1), "bye")
	require.Zero(t, p.ExitCode())
	require.NoError(t, p.Err(), "it was asked to end")
	requireGone(t, child)
	require.NoError(t, p.Stop(t.Context()), "stopping what does not run is no error")
}

func TestKillTakesTheWholeGroup(t *testing.T) {
	p := shell(t, polite)
	require.NoError(t, p.Start(t.Context()))
	require.NoError(t, p.WaitLog(t.Context(), "hello"))
	child := childOf(t, p)

	p.Kill()
	require.False(t, p.Running())
	require.Equal(t, -1, p.ExitCode())
	require.NotContains(t, p.Tail(5), "bye")
	requireGone(t, child)
}

func TestStopKillsProcessThatIgnoresSIGTERM(t *testing.T) {
	p := shell(t, deaf)
	require.NoError(t, p.Start(t.Context()))
	require.NoError(t, p.WaitLog(t.Context(), "hello"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Stop(ctx), context.DeadlineExceeded)
	require.False(t, p.Running())
}

func TestRestartStartsANewProcess(t *testing.T) {
	p := shell(t, polite)
	require.NoError(t, p.Start(t.Context()))
	require.ErrorIs(t, p.Start(t.Context()), process.ErrRunning)
	require.NoError(t, p.WaitLog(t.Context(), "hello"))
	first := p.Pid()

	mark := p.Mark()
	require.NoError(t, p.Restart(t.Context()))
	require.NotEqual(t, first, p.Pid())
	require.NoError(t, p.WaitLogFrom(t.Context(), mark, "hello"))
	log, err := os.ReadFile(p.LogPath())
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(log), "hello"), "the log holds both lives")
}

func TestUnexpectedExitIsReported(t *testing.T) {
	p := shell(t, "echo cannot find my keys; exit 3")
	require.NoError(t, p.Start(t.Context()))
	<-p.Done()
	require.Equal(t, 3, p.ExitCode())
	require.ErrorContains(t, p.Err(), "shell ended by itself: exit status 3")
	require.ErrorContains(t, p.Err(), "cannot find my keys")
	require.ErrorContains(t, p.WaitLog(t.Context(), "never"), "ended without writing")
}

func TestStartWaitsUntilReady(t *testing.T) {
	asked := 0
	p := shell(t, polite, func(o *process.Options) {
		o.Ready = func(context.Context) error {
			if asked++; asked < 3 {
				return errors.New("not yet")
			}
			return nil
		}
	})
	require.NoError(t, p.Start(t.Context()))
	require.Equal(t, 3, asked)
}

func TestStartFailsWithTheLog(t *testing.T) {
	never := func(o *process.Options) {
		o.Ready = func(context.Context) error { return errors.New("no answer") }
	}
	t.Run("when the program ends before it is ready", func(t *testing.T) {
		p := shell(t, "echo bad flag; exit 2", never)
		err := p.Start(t.Context())
		require.ErrorContains(t, err, "exit status 2")
		require.ErrorContains(t, err, "bad flag")
	})
	t.Run("when it does not get ready in time", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asked := 0
		p := shell(t, deaf, func(o *process.Options) {
			o.Ready = func(context.Context) error {
				if asked++; asked == 2 {
					cancel() // it has taken too long
				}
				return errors.New("no answer")
			}
		})
		err := p.Start(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "no answer")
		require.False(t, p.Running())
	})
}

func TestWaitLogEndsWithItsContext(t *testing.T) {
	p := shell(t, polite)
	require.NoError(t, p.Start(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.WaitLog(ctx, "never written"), context.DeadlineExceeded)
}

func TestUsage(t *testing.T) {
	p := shell(t, polite)
	require.NoError(t, p.Start(t.Context()))
	require.NoError(t, p.WaitLog(t.Context(), "hello"))
	usage, err := p.Usage()
	require.NoError(t, err)
	require.Positive(t, usage.Resident)
	require.GreaterOrEqual(t, usage.Peak, usage.Resident)
}

func childOf(t *testing.T, p *process.Process) int {
	t.Helper()
	_, rest, found := strings.Cut(p.Tail(10), "child ")
	require.True(t, found)
	pid, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return pid
}

// requireGone waits until a process that was killed has been buried, which its new parent does in its own time.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(stat), ") Z ")
	}, 2*time.Minute, 5*time.Millisecond)
}
