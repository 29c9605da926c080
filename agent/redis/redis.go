// Package redis lets the hub read from the spoke's Redis what Argo CD's UI shows of applications, and nothing else. The
// password stays on the spoke.
package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/version"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

const (
	// greeting is how long the hub may take to say hello, and Redis to answer ours.
	greeting = 10 * time.Second
	// maxCommand bounds what the hub may say at once.
	maxCommand = 8 << 10
	// maxUnanswered is how many commands of a conversation Redis is given before the hub has taken the answers. Redis keeps
	// answers that nobody takes, all of them, and does nothing else while it makes them.
	maxUnanswered = 16
	// maxChannels is how often a conversation may subscribe and unsubscribe to something: Redis keeps these too.
	maxChannels = 1024
	// stalled is how long the hub may take nothing of what there is for it.
	stalled = time.Minute
	// chunk is how much is passed on at a time.
	chunk = 32 << 10
)

// Options configure a Server.
type Options struct {
	// Access is how to get to Redis.
	Access Access
	// KeyPrefix is what all of Argo CD's keys begin with, usually nothing.
	KeyPrefix string
	// Namespace is that of Argo CD on the spoke.
	Namespace string
	// Shown, if set, returns where the hub shows the spoke's applications.
	Shown func() argocd.Move
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Server serves the hub.
type Server struct {
	options  Options
	commands *prometheus.CounterVec
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{options: o, commands: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argocd_agent_redis_proxy_requests_total", Help: "Commands of the hub for the spoke's Redis.",
	}, []string{"command", "outcome"})}
	o.Registerer.MustRegister(s.commands)
	return s
}

// Serve serves conversations of a listener until it is closed and the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		hub, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve the spoke's Redis: %w", err)
		}
		conns.Go(func() { s.converse(ctx, hub) })
	}
}

// converse serves one conversation to its end.
func (s *Server) converse(ctx context.Context, hub net.Conn) {
	defer hub.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { hub.Close() })()
	commands := newReader(hub)
	_ = hub.SetReadDeadline(time.Now().Add(greeting)) // fails only if it is closed
	first, err := commands.next()
	if err != nil {
		return
	}
	if !isHello(first.Args) {
		_, _ = hub.Write(redcon.AppendError(nil, "NOPROTO say HELLO 3 first")) // who does not read it misses nothing
		return
	}
	spoke, err := s.open(ctx)
	if err != nil {
		s.options.Logger.Warn("The spoke's Redis cannot be reached", "error", err)
		_, _ = hub.Write(redcon.AppendError(nil, "ERR the spoke's Redis cannot be reached: "+oneLine(err)))
		return
	}
	defer spoke.Close()
	if s.options.Shown != nil {
		spoke.answers = newShown(spoke.answers, s.options.Shown())
	}
	_ = hub.SetReadDeadline(time.Time{})
	if _, err := hub.Write(s.hello()); err != nil {
		return
	}
	s.pass(ctx, hub, spoke, commands)
}

// pass passes commands on that the hub may give, and all that Redis says.
func (s *Server) pass(ctx context.Context, hub net.Conn, spoke *connection, commands *reader) {
	defer context.AfterFunc(ctx, func() { spoke.Close() })()
	var answers sync.WaitGroup
	unanswered, gone := make(chan struct{}, maxUnanswered), make(chan struct{})
	answers.Go(func() {
		defer close(gone)
		answer(hub, spoke.answers, unanswered)
		hub.Close()
	})
	refusal := s.forward(spoke, commands, unanswered, gone)
	// What was asked before is answered before. Redis ends when it has read to the end.
	spoke.last(refusal)
	_ = spoke.CloseWrite()
	answers.Wait()
}

// answer passes on what Redis says, until either end goes, and takes a command off those that are unanswered for each answer.
func answer(hub net.Conn, from io.Reader, unanswered <-chan struct{}) {
	var replies resp.Replies
	buffer := make([]byte, chunk)
	for {
		n, err := from.Read(buffer)
		answered := 0
		for rest := buffer[:n]; len(rest) > 0; {
			part, done, err := replies.Next(rest)
			if err != nil {
				return
			}
			if rest = rest[part:]; done && replies.Kind() != '>' {
				answered++
			}
		}
		_ = hub.SetWriteDeadline(time.Now().Add(stalled)) // fails only if it is closed
		if _, err := hub.Write(buffer[:n]); err != nil {
			return
		}
		for range answered {
			select {
			case <-unanswered:
			default: // a subscription that went wrong: the answer to one that did not is no reply
			}
		}
		if err != nil {
			return
		}
	}
}

// forward passes commands on, until there are no more, one is refused, or answers are gone. It returns the answer to what it
// refused.
func (s *Server) forward(spoke io.Writer, commands *reader, unanswered chan<- struct{}, gone <-chan struct{}) (refusal []byte) {
	for channels := 0; ; {
		c, err := commands.next()
		if err != nil {
			return nil
		}
		name := strings.ToLower(string(c.Args[0]))
		err = s.allow(name, c.Args[1:])
		counted := !strings.HasSuffix(name, "subscribe") // what answers those are no replies
		if !counted {
			channels += len(c.Args)
		}
		if err == nil && channels > maxChannels {
			err = errors.New("too many channels in one conversation")
		}
		if err != nil {
			s.commands.WithLabelValues("other", "refused").Inc()
			s.options.Logger.Warn("The hub asked the spoke's Redis for what it may not", "reason", err.Error())
			return redcon.AppendError(nil, "NOPERM "+oneLine(err))
		}
		if counted && !enter(unanswered, gone) {
			return nil
		}
		s.commands.WithLabelValues(name, "passed").Inc()
		if _, err := spoke.Write(c.Raw); err != nil {
			return nil
		}
	}
}

// enter waits for a place among what is unanswered, and reports false if answers are gone.
func enter(unanswered chan<- struct{}, gone <-chan struct{}) bool {
	select {
	case unanswered <- struct{}{}:
		return true
	case <-gone:
		return false
	}
}

// allow returns nil if the hub may give a command. It may read an application's resource tree, its managed resources, and what
// is known of the cluster, and hear which of them change.
func (s *Server) allow(name string, args [][]byte) error {
	space := keys.Space{Prefix: s.options.KeyPrefix}
	allowed := func(arg string) bool { return space.Begins(arg, keys.Managed) } // the channels are called like them
	switch name {
	case "ping":
		return nil
	case "get":
		allowed = func(arg string) bool { return space.Begins(arg, keys.Tree, keys.Managed, keys.Cluster) }
		if len(args) != 1 {
			return errors.New("GET wants one key")
		}
	case "subscribe", "unsubscribe":
	case "psubscribe", "punsubscribe":
		allowed = func(arg string) bool { return space.Begins(keys.PatternHead(arg), keys.Managed) }
	case "client":
		prefixes, err := tracked(args)
		if err != nil {
			return err
		}
		args, allowed = prefixes, func(arg string) bool {
			return slices.ContainsFunc(space.Tracked(), func(p string) bool { return strings.HasPrefix(arg, p) })
		}
	default:
		return fmt.Errorf("%.64q is no command for the hub", name)
	}
	for _, arg := range args {
		if !allowed(string(arg)) {
			return fmt.Errorf("%s of %.128q is not for the hub", strings.ToUpper(name), arg)
		}
	}
	return nil
}

// tracked returns the prefixes of keys whose changes are asked for: CLIENT TRACKING ON BCAST PREFIX p [PREFIX p ...].
func tracked(args [][]byte) (prefixes [][]byte, err error) {
	words := []string{"tracking", "on", "bcast"}
	if len(args) < len(words)+2 || len(args)%2 == 0 {
		return nil, errors.New("of CLIENT there is only CLIENT TRACKING ON BCAST PREFIX for the hub")
	}
	for i, word := range words {
		if !strings.EqualFold(string(args[i]), word) {
			return nil, errors.New("of CLIENT there is only CLIENT TRACKING ON BCAST PREFIX for the hub")
		}
	}
	for pair := range slices.Chunk(args[len(words):], 2) {
		if !strings.EqualFold(string(pair[0]), "prefix") {
			return nil, errors.New("CLIENT TRACKING ON BCAST takes nothing but PREFIX")
		}
		prefixes = append(prefixes, pair[1])
	}
	return prefixes, nil
}

func isHello(args [][]byte) bool {
	return len(args) == 2 && strings.EqualFold(string(args[0]), "hello") && string(args[1]) == "3"
}

// hello answers the hub's HELLO: what it must know to ask.
func (s *Server) hello() []byte {
	answer := []byte("%5\r\n")
	for _, field := range [][2]string{
		{"server", "argocd-agent"}, {"version", version.Version()}, {"key-prefix", s.options.KeyPrefix},
		{"namespace", s.options.Namespace},
	} {
		answer = redcon.AppendBulkString(redcon.AppendBulkString(answer, field[0]), field[1])
	}
	return redcon.AppendInt(redcon.AppendBulkString(answer, "proto"), 3)
}

// oneLine returns an error's text as one line, as an error in RESP must be.
func oneLine(err error) string {
	return strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, err.Error())
}

// reader reads the hub's commands.
type reader struct {
	source  *bufio.Reader
	scanner *resp.Scanner
	taken   int // bytes of the last command, which are to be dropped
}

func newReader(hub io.Reader) *reader {
	return &reader{
		source:  bufio.NewReaderSize(hub, maxCommand),
		scanner: resp.NewScanner(resp.Limits{Args: 64, Bulk: 2 << 10, Inline: 1 << 10}),
	}
}

// next returns the next command, which is valid until the next call. It has a name.
func (r *reader) next() (resp.Command, error) {
	for {
		if _, err := r.source.Discard(r.taken); err != nil {
			return resp.Command{}, err
		}
		r.taken = 0
		command, err := r.scan()
		if err != nil || len(command.Args) > 0 {
			return command, err
		}
	}
}

// scan returns the next command, which may be one of no words.
func (r *reader) scan() (command resp.Command, err error) {
	there, err := r.source.Peek(max(1, r.source.Buffered()))
	for err == nil {
		if command, r.taken, err = r.scanner.Next(there); err != nil || r.taken > 0 {
			return command, err
		}
		there, err = r.more(len(there))
	}
	return resp.Command{}, err
}

// more returns what is there once there is more than that.
func (r *reader) more(than int) ([]byte, error) {
	if _, err := r.source.Peek(than + 1); err != nil {
		return nil, err // a command that does not fit the buffer is too large
	}
	return r.source.Peek(r.source.Buffered())
}
