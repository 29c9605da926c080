// Package redis serves the hub a read-only part of the spoke's Redis: what Argo CD's UI shows of applications, and nothing else.
// The password stays on the spoke.
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
	// handshakeTimeout is how long the hub may take to send its HELLO, and Redis to reply to ours.
	handshakeTimeout = 10 * time.Second
	// maxCommand bounds the bytes of one command.
	maxCommand = 8 << 10
	// maxUnanswered is how many commands of a connection Redis is sent before the hub has read the replies. Redis keeps all
	// replies that nobody reads.
	maxUnanswered = 16
	// maxSubscriptions is how many channels a connection may name in commands about subscriptions: Redis keeps these too.
	maxSubscriptions = 1024
	// writeTimeout is how long the hub may read nothing.
	writeTimeout = time.Minute
	// bufferSize is how much of replies is passed on at a time.
	bufferSize = 32 << 10
)

// Options configure a Server.
type Options struct {
	// Access is how to get to Redis.
	Access Access
	// KeyPrefix is what all of Argo CD's keys begin with, usually nothing.
	KeyPrefix string
	// Namespace is that of Argo CD on the spoke.
	Namespace string
	// Shared reports whether the spoke shares an Application of that instance name with the hub.
	Shared func(application string) bool
	// ToHub, if set, maps the spoke's namespace to the hub's.
	ToHub func() argocd.Move
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Server serves the hub.
type Server struct {
	options  Options
	commands *prometheus.CounterVec

	mu        sync.Mutex
	followers map[net.Conn]struct{} // connections by which the hub follows changes. Guarded by mu
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{options: o, followers: make(map[net.Conn]struct{}), commands: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argocd_agent_redis_proxy_requests_total", Help: "Redis commands from the hub, by outcome.",
	}, []string{"command", "outcome"})}
	o.Registerer.MustRegister(s.commands)
	return s
}

// Serve serves connections of a listener until it is closed and the context ends.
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
		conns.Go(func() { s.serveConn(ctx, hub) })
	}
}

// serveConn serves one connection to its end.
func (s *Server) serveConn(ctx context.Context, hub net.Conn) {
	defer hub.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { hub.Close() })()
	commands := newCommandReader(hub)
	_ = hub.SetReadDeadline(time.Now().Add(handshakeTimeout)) // fails only if it is closed
	first, err := commands.read()
	if err != nil {
		return
	}
	if !isHello(first.Args) {
		_, _ = hub.Write(redcon.AppendError(nil, "NOPROTO say HELLO 3 first")) // fails only if the hub is gone
		return
	}
	spoke, err := s.open(ctx)
	if err != nil {
		s.options.Logger.Warn("Connection to Redis failed", "address", s.options.Access.Address, "err", err)
		_, _ = hub.Write(redcon.AppendError(nil, "ERR the spoke's Redis cannot be reached: "+oneLine(err)))
		return
	}
	defer spoke.Close()
	spoke.replies = s.newPushFilter(spoke.replies)
	if s.options.ToHub != nil {
		spoke.replies = newRewriter(spoke.replies, s.options.ToHub())
	}
	_ = hub.SetReadDeadline(time.Time{})
	defer retire(hub)()
	if _, err := hub.Write(s.helloReply()); err != nil {
		return
	}
	s.relay(ctx, hub, spoke, commands)
}

// retire has no more commands read from a connection once the hub has another way to the spoke: the replies to earlier ones go through, and
// the hub then connects again. Call the returned function when the connection is over.
func retire(hub net.Conn) (over func()) {
	conn, ok := hub.(interface{ Retired() <-chan struct{} })
	if !ok {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-conn.Retired():
			_ = hub.SetReadDeadline(time.Unix(1, 0)) // fails only if it is closed
		case <-ended:
		}
	}()
	return func() { close(ended); <-done }
}

// relay passes on the commands that the hub may give, and all that Redis replies.
func (s *Server) relay(ctx context.Context, hub net.Conn, spoke *connection, commands *commandReader) {
	defer context.AfterFunc(ctx, func() { spoke.Close() })()
	var replies sync.WaitGroup
	unanswered, gone := make(chan struct{}, maxUnanswered), make(chan struct{})
	replies.Go(func() {
		defer close(gone)
		forwardReplies(hub, spoke.replies, unanswered)
		hub.Close()
	})
	defer s.ended(hub)
	refusal := s.forwardCommands(hub, spoke, commands, unanswered, gone)
	// The replies to earlier commands come first. Redis ends when it has read to the end.
	spoke.setFinalReply(refusal)
	_ = spoke.CloseWrite()
	replies.Wait()
}

// forwardReplies passes on what Redis replies, until either end goes, and takes a command off those that are unanswered for each
// reply.
func forwardReplies(hub net.Conn, from io.Reader, unanswered <-chan struct{}) {
	var replies resp.ReplyScanner
	buffer := make([]byte, bufferSize)
	for {
		n, err := from.Read(buffer)
		answered := 0
		for rest := buffer[:n]; len(rest) > 0; {
			part, done, err := replies.NextReply(rest)
			if err != nil {
				return
			}
			if rest = rest[part:]; done && replies.Kind() != '>' {
				answered++
			}
		}
		_ = hub.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only if it is closed
		if _, err := hub.Write(buffer[:n]); err != nil {
			return
		}
		for range answered {
			select {
			case <-unanswered:
			default: // a subscription that failed: the confirmation of one that did not is a push
			}
		}
		if err != nil {
			return
		}
	}
}

// forwardCommands passes commands on, until there are no more, one is refused, or no more replies come. It returns the reply to
// what it refused.
func (s *Server) forwardCommands(hub net.Conn, spoke io.Writer, commands *commandReader, unanswered chan<- struct{}, gone <-chan struct{},
) (refusal []byte) {
	for subscriptions := 0; ; {
		c, err := commands.read()
		if err != nil {
			return nil
		}
		name := strings.ToLower(string(c.Args[0]))
		err = s.allow(name, c.Args[1:])
		counted := !strings.HasSuffix(name, "subscribe") // their confirmations are pushes
		if !counted {
			subscriptions += len(c.Args)
		}
		if err == nil && subscriptions > maxSubscriptions {
			err = errors.New("too many channels in one connection")
		}
		if err != nil {
			s.commands.WithLabelValues("other", "refused").Inc()
			// Without its arguments, and without the error that quotes them: whoever sends AUTH or SET here sends secrets with it.
			s.options.Logger.Warn("Rejected Redis command from hub", "command", printableName(name), "arguments", len(c.Args)-1)
			return redcon.AppendError(nil, "NOPERM "+oneLine(err))
		}
		if counted && !acquire(unanswered, gone) {
			return nil
		}
		raw, outcome := c.Raw, "passed"
		switch name {
		case "get":
			if !s.shared(c.Args[1]) {
				raw, outcome = s.missing(), "not_shared"
			}
		case "client", "subscribe", "psubscribe":
			s.follows(hub)
		}
		s.commands.WithLabelValues(name, outcome).Inc()
		if _, err := spoke.Write(raw); err != nil {
			return nil
		}
	}
}

// acquire waits until fewer commands are unanswered, and reports false if no more replies come.
func acquire(unanswered chan<- struct{}, gone <-chan struct{}) bool {
	select {
	case unanswered <- struct{}{}:
		return true
	case <-gone:
		return false
	}
}

// allow returns nil if the hub may give a command. It may read an application's resource tree, its managed resources and the
// cluster info, and subscribe to their changes. Which applications it finds is for shared to say.
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

// printableName returns the name of a command as it may be logged: commands of Redis are short words.
func printableName(name string) string {
	if len(name) > 16 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "" {
		return "?"
	}
	return name
}

func isHello(args [][]byte) bool {
	return len(args) == 2 && strings.EqualFold(string(args[0]), "hello") && string(args[1]) == "3"
}

// helloReply is the reply to the hub's HELLO: what it must know to read keys.
func (s *Server) helloReply() []byte {
	reply := []byte("%5\r\n")
	for _, field := range [][2]string{
		{"server", "argocd-agent"}, {"version", version.Version()}, {"key-prefix", s.options.KeyPrefix},
		{"namespace", s.options.Namespace},
	} {
		reply = redcon.AppendBulkString(redcon.AppendBulkString(reply, field[0]), field[1])
	}
	return redcon.AppendInt(redcon.AppendBulkString(reply, "proto"), 3)
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

// commandReader reads the hub's commands.
type commandReader struct {
	source  *bufio.Reader
	scanner *resp.CommandScanner
	size    int // bytes of the last command, which are to be discarded
}

func newCommandReader(hub io.Reader) *commandReader {
	return &commandReader{
		source:  bufio.NewReaderSize(hub, maxCommand),
		scanner: resp.NewCommandScanner(resp.Limits{Args: 64, Bulk: 2 << 10, Inline: 1 << 10}),
	}
}

// read returns the next command, which is valid until the next call. It has a name.
func (r *commandReader) read() (resp.Command, error) {
	for {
		if _, err := r.source.Discard(r.size); err != nil {
			return resp.Command{}, err
		}
		r.size = 0
		command, err := r.scan()
		if err != nil || len(command.Args) > 0 {
			return command, err
		}
	}
}

// scan returns the next command, which may be one of no words.
func (r *commandReader) scan() (command resp.Command, err error) {
	there, err := r.source.Peek(max(1, r.source.Buffered()))
	for err == nil {
		if command, r.size, err = r.scanner.NextCommand(there); err != nil || r.size > 0 {
			return command, err
		}
		there, err = r.more(len(there))
	}
	return resp.Command{}, err
}

// more returns what is there once there is more than that.
func (r *commandReader) more(than int) ([]byte, error) {
	if _, err := r.source.Peek(than + 1); err != nil {
		return nil, err // a command that does not fit the buffer is too large
	}
	return r.source.Peek(r.source.Buffered())
}
