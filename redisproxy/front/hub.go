package front

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/socket"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/upstream"
)

// acceptance is how long a client counts as accepted. Redis may have disconnected it since, with the user that it was.
const acceptance = time.Minute

// take has one step answered.
func (s *session) take(ctx context.Context, one *step) error {
	switch one.kind {
	case toHub:
		s.server.metrics.passed.Add(float64(one.count))
		if one.waits {
			if err := s.connect(ctx); err != nil {
				return err
			}
			defer s.mind()()
		}
		kind, err := s.forward(ctx, one.raw, one.count)
		if err == nil && one.shares && kind != '-' { // which nobody hears who is not accepted
			s.accepted = true
		}
		return err
	case toHubSeen:
		s.server.metrics.passed.Inc()
		return s.see(ctx, one)
	case toHubTold:
		s.server.metrics.passed.Inc()
		if err := s.listen(ctx, nil); err != nil {
			return err
		}
		return s.stream.subscribe(one)
	case toAgents:
		return s.local(ctx, one)
	default:
		if err := s.say(one.reply); err != nil {
			return err
		}
		if one.farewell {
			return errQuit
		}
		return nil
	}
}

// connect makes the client's own connection to the hub's Redis, if it has none.
func (s *session) connect(ctx context.Context) error {
	if s.own != nil {
		return nil
	}
	own, err := s.server.options.Upstream.Open(ctx)
	if ctx.Err() == nil {
		s.server.reached(err)
	}
	if err != nil {
		return err
	}
	s.own, s.ownSoon = own, socket.New(own)
	s.keepOwn = context.AfterFunc(ctx, func() { _ = own.Close() })
	return nil
}

// mind watches out for the client's end while Redis may take as long as it likes, and returns what ends that. What the
// client sends meanwhile is read behind what is being answered. One who will not send any more may still want to hear what
// Redis answers without waiting.
func (s *session) mind() (stop func()) {
	free := s.in[s.end:]
	if len(free) == 0 {
		return func() {}
	}
	read := 0
	var watching sync.WaitGroup
	watching.Go(func() {
		var err error
		switch read, err = s.conn.Read(free); {
		case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
		case errors.Is(err, io.EOF):
			_ = s.own.SetReadDeadline(time.Now().Add(farewell))
		default:
			_ = s.conn.Close()
			_ = s.own.Close()
		}
	})
	return func() {
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
		watching.Wait()
		_ = s.conn.SetReadDeadline(time.Time{})
		s.end += read
	}
}

// forward has the hub's Redis answer commands over the client's own connection, and hands the replies on. It returns what
// kind of reply the last one was.
func (s *session) forward(ctx context.Context, raw []byte, count int) (kind byte, err error) {
	if s.stream != nil {
		return s.stream.pass(raw, count)
	}
	kind, rest, err := s.relay(ctx, raw, count, s.say)
	if err == nil && len(rest) > 0 {
		err = errUnasked
	}
	return kind, err
}

// fetch has the hub's Redis answer a command over the client's own connection, and returns the reply.
func (s *session) fetch(ctx context.Context, raw []byte) ([]byte, error) {
	if s.stream != nil {
		return s.stream.fetch(raw)
	}
	var reply []byte
	_, rest, err := s.relay(ctx, raw, 1, func(p []byte) error {
		if len(reply)+len(p) > s.server.options.Limits.Backlog {
			return errOverrun
		}
		reply = append(reply, p...)
		return nil
	})
	if err == nil && len(rest) > 0 {
		err = errUnasked
	}
	return reply, err
}

// relay sends commands over the client's own connection, and gives their replies, in pieces, to a function. It returns what
// Redis sent beyond them.
func (s *session) relay(ctx context.Context, raw []byte, count int, to func([]byte) error) (kind byte, rest []byte, err error) {
	if err := s.connect(ctx); err != nil {
		return 0, nil, err
	}
	if _, err := s.own.Write(raw); err != nil {
		return 0, nil, err
	}
	buffer := s.server.buffers.Get().(*[]byte)
	defer s.server.buffers.Put(buffer)
	var replies resp.Replies
	for count > 0 {
		n, err := s.readSoon(s.own, s.ownSoon, *buffer)
		if err != nil {
			return 0, nil, err
		}
		used := 0
		for used < n && count > 0 {
			step, done, err := replies.Next((*buffer)[used:n])
			if err != nil {
				return 0, nil, err
			}
			used += step
			if done {
				count--
			}
		}
		if err := to((*buffer)[:used]); err != nil {
			return 0, nil, err
		}
		rest = append(rest, (*buffer)[used:n]...)
	}
	return replies.Kind(), rest, nil
}

// readSoon reads from a connection, of which soon is the socket if it has one.
func (s *session) readSoon(conn net.Conn, soon *socket.Socket, p []byte) (int, error) {
	if soon == nil {
		return conn.Read(p)
	}
	return soon.ReadSoon(p, moment, s.alone)
}

// see has the hub's Redis answer a command, and takes in what that means for the connection.
func (s *session) see(ctx context.Context, one *step) error {
	var kind byte
	var rest []byte
	var err error
	switch {
	case s.stream == nil:
		kind, rest, err = s.relay(ctx, one.raw, 1, s.say)
	case one.name == "reset":
		kind, err = s.stream.reset(one.raw)
	default:
		kind, err = s.stream.pass(one.raw, 1)
	}
	if err != nil {
		return err
	}
	if kind != '-' && one.verb == talk {
		s.sticky = true
		return s.listen(ctx, rest)
	}
	if len(rest) > 0 {
		return errUnasked
	}
	if kind != '-' {
		s.identified(one)
	}
	return nil
}

// identified takes in a command about who the client is, or that what follows is a transaction, with which Redis agreed.
func (s *session) identified(one *step) {
	id := s.identity
	s.accepted, s.asked = true, time.Now()
	switch args := one.args; one.name {
	case "auth":
		id.User, id.Password = credentials(args[1:])
	case "multi":
		s.queueing = true
	case "select":
		if n, err := strconv.Atoi(string(args[1])); err == nil {
			id.Database = n
		} else {
			s.sticky = true
		}
	case "hello":
		if len(args) > 1 {
			id.Protocol, _ = strconv.Atoi(string(args[1]))
			s.introduced(&id, args[2:])
		}
	case "reset":
		id.User, id.Password, id.Database, id.Protocol = "", "", 0, 0
		s.accepted, s.queueing, s.watching, s.sticky = false, false, false, false
	}
	if s.stream != nil {
		s.stream.three.Store(id.Protocol == 3)
	}
	if id != s.identity {
		s.become(id)
	}
}

// introduced takes in the options of a HELLO with which Redis agreed. They are read one after the other, as Redis does: a
// name or a password may be spelled like an option.
func (s *session) introduced(id *upstream.Identity, options [][]byte) {
	for len(options) > 0 {
		var word [8]byte
		switch option := string(resp.Lower(word[:], options[0])); {
		case option == "auth" && len(options) > 2:
			id.User, id.Password = string(options[1]), string(options[2])
			options = options[3:]
		case option == "setname" && len(options) > 1:
			options = options[2:]
		default: // a newer Redis knows more of them: who the client is, only its own connection knows
			s.sticky = true
			return
		}
	}
}

// credentials are those of AUTH.
func credentials(args [][]byte) (user, password string) {
	if len(args) == 1 {
		return "", string(args[0])
	}
	return string(args[0]), string(args[1])
}

// accept returns nil when the hub's Redis has accepted the client, and otherwise Redis' own refusal.
func (s *session) accept(ctx context.Context) (refusal []byte, err error) {
	if s.accepted && time.Since(s.asked) < acceptance {
		return nil, nil
	}
	reply, err := s.fetch(ctx, redcon.AppendBulkString(redcon.AppendArray(nil, 1), "PING"))
	if err != nil {
		return nil, err
	}
	// One who may do this or that but not PING is somebody.
	if reply[0] == '-' && string(reply[:min(len(reply), 7)]) != "-NOPERM" {
		s.accepted = false
		return reply, nil
	}
	s.accepted, s.asked = true, time.Now()
	return nil, nil
}

// listen makes that the client is told what Redis says unasked. rest is what it has said already.
func (s *session) listen(ctx context.Context, rest []byte) error {
	if s.stream != nil {
		return nil
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.stream = newStream(s, rest)
	return nil
}
