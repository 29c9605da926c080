package spokes_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/bounds"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spoketest"
)

// liars are agents whose Redis is one that a test made up: it answers a GET as it likes.
type liars struct {
	t       *testing.T
	spokes  *spokes.Spokes
	log     *logtest.Log
	answers map[string]func(key string, to io.Writer) // by agent
	serving sync.WaitGroup
}

// beginLiars serves a hub that has these agents, and one that is "honest". Each has an application "app-<agent>" on the hub.
func beginLiars(t *testing.T, timeout time.Duration, answers map[string]func(string, io.Writer)) *liars {
	t.Helper()
	answers["honest"] = honest
	l := &liars{t: t, log: &logtest.Log{}, answers: answers}
	known := spoketest.NewDirectory()
	for name := range answers {
		known.SetOwner("app-"+name, name, "app")
		known.Set(directory.Agent{Name: name, Connected: true, Since: time.Now()})
	}
	l.spokes = spokes.New(spokes.Options{
		Dial: l.dial, Directory: known, CacheSize: ample, Timeout: timeout, Registerer: prometheus.NewRegistry(),
		ValueLimits: bounds.Limits{Size: 16 << 20, Memory: 32 << 20}, Logger: slog.New(slog.NewTextHandler(l.log, nil)),
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { l.spokes.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		l.serving.Wait()
	})
	require.Eventually(t, func() bool { // until it runs
		_, failure := l.wait(l.ask("honest", "first"))
		return failure == nil
	}, testTimeout, time.Millisecond)
	return l
}

func (l *liars) dial(_ context.Context, agent string) (net.Conn, error) {
	near, far := net.Pipe()
	l.serving.Go(func() {
		defer far.Close()
		reader := redcon.NewReader(far)
		for {
			command, err := reader.ReadCommand()
			if err != nil {
				return
			}
			switch strings.ToUpper(string(command.Args[0])) {
			case "HELLO":
				_, err = io.WriteString(far, "%1\r\n$5\r\nproto\r\n:3\r\n")
			case "PSUBSCRIBE":
				_, err = io.WriteString(far, ">3\r\n$10\r\npsubscribe\r\n$1\r\nx\r\n:1\r\n")
			case "GET":
				l.answers[agent](string(command.Args[1]), far)
			default:
				_, err = io.WriteString(far, "+OK\r\n")
			}
			if err != nil {
				return
			}
		}
	})
	return near, nil
}

// ask begins to read a tree of an agent's.
func (l *liars) ask(agent, version string) spokes.Read {
	l.t.Helper()
	w := world{t: l.t, spokes: l.spokes}
	return w.ask("app|resources-tree|app-" + agent + "|" + version)
}

// wait returns the value, and why there is none.
func (l *liars) wait(r spokes.Read) (string, error) {
	l.t.Helper()
	value, failure, err := r.Wait(l.t.Context())
	require.NoError(l.t, err)
	return string(value), failure
}

// honest answers with a short value.
func honest(_ string, to io.Writer) { _, _ = io.WriteString(to, "$4\r\ntree\r\n") }

// One agent sends large values, all but their ends. Others are read meanwhile.
func TestOneAgentCannotHoldAllThatMayBeRead(t *testing.T) {
	t.Parallel()
	const size = 40 << 20
	began, ended := make(chan struct{}, 100), make(chan struct{})
	defer close(ended)
	l := beginLiars(t, testTimeout, map[string]func(string, io.Writer){
		"liar": func(_ string, to io.Writer) {
			if _, err := fmt.Fprintf(to, "$%d\r\n", size+1); err != nil {
				return
			}
			_, err := to.Write(bytes.Repeat([]byte("x"), size))
			began <- struct{}{}
			if err == nil {
				<-ended
			}
		},
	})
	held := []spokes.Read{l.ask("liar", "1"), l.ask("liar", "2"), l.ask("liar", "3"), l.ask("liar", "4"), l.ask("liar", "5"), l.ask("liar", "6"), l.ask("liar", "7")}
	for range held {
		<-began
	}
	value, failure := l.wait(l.ask("honest", "1"))
	require.NoError(t, failure)
	require.Equal(t, "$4\r\ntree\r\n", value)
	refused := 0
	for i := range held {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // those that are held do not come
		if _, failure, _ := held[i].Wait(ctx); failure != nil {
			require.ErrorContains(t, failure, `agent "liar": refused a value of the agent's Redis: more than 96 MiB of this agent's values are being read at once`)
			refused++
		}
	}
	require.NotZero(t, refused)
}

// A value that comes byte by byte, so that it never pauses, has to be over in time all the same.
func TestValueThatTricklesIsGivenUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		over := make(chan time.Time, 1)
		l := beginLiars(t, 10*time.Second, map[string]func(string, io.Writer){"liar": func(_ string, to io.Writer) {
			_, err := fmt.Fprintf(to, "$%d\r\n", 1<<20)
			for err == nil {
				<-time.After(time.Second / 2)
				_, err = io.WriteString(to, "x")
			}
			over <- time.Now()
		}})
		began := time.Now()
		_, failure := l.wait(l.ask("liar", "1"))
		require.ErrorContains(t, failure, "took too long")
		require.Equal(t, 10*time.Second, time.Since(began))
		require.LessOrEqual(t, (<-over).Sub(began), 31*time.Second)
	})
}

// What inflates to more than argocd-server can hold is refused, with the reason, and logged once.
func TestBombIsRefusedAndLoggedOnce(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 64 {
		_, err := w.Write(bytes.Repeat([]byte(" "), 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	bomb := packed.String()
	l := beginLiars(t, testTimeout, map[string]func(string, io.Writer){"liar": func(key string, to io.Writer) {
		value := bomb
		if strings.HasSuffix(key, "|nulls") {
			value = "[" + strings.Repeat("null,", 200_000)
		}
		_, _ = io.WriteString(to, "$"+strconv.Itoa(len(value))+"\r\n"+value+"\r\n")
	}})
	for range 5 {
		value, failure := l.wait(l.ask("liar", "1.8.3.gz"))
		require.Empty(t, value)
		require.ErrorContains(t, failure, `agent "liar": refused a value of the agent's Redis: app|resources-tree|app|1.8.3.gz: the value is too large for argocd-server`)
		require.ErrorContains(t, failure, "inflate to more than 16 MiB: raise --max-value-size")
	}
	require.Equal(t, 1, strings.Count(l.log.String(), "Refused a value of an agent's Redis"))
	_, failure := l.wait(l.ask("liar", "nulls"))
	require.ErrorContains(t, failure, "--max-value-memory")
}
