package front

import (
	"context"
	"fmt"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
)

// ahead asks the agents for all that the collected commands are about, so that a client waits for the slowest answer and
// not for the sum. Who is not accepted yet is to cause nothing on a spoke.
func (s *session) ahead() {
	if !s.accepted {
		return
	}
	for i := range s.steps {
		if one := &s.steps[i]; one.kind == toAgents && one.shares {
			s.ask(one)
		}
	}
}

func (s *session) ask(one *step) {
	if one.asked != nil {
		return
	}
	one.asked = make([]spokes.Question, len(one.targets))
	for i, target := range one.targets {
		if target.Agent != "" {
			one.asked[i] = s.server.options.Spokes.Ask(target)
		}
	}
}

// local answers a command about agents' keys.
func (s *session) local(ctx context.Context, one *step) error {
	m := &s.server.metrics
	if s.stream != nil && s.stream.listening() { // Redis knows what to say to that
		_, err := s.stream.pass(encode(one.args), 1)
		return err
	}
	refusal, err := s.accept(ctx)
	if err != nil {
		return err
	}
	if refusal != nil {
		m.unaccepted.Inc()
		return s.say(refusal)
	}
	if !one.shares {
		m.forbidden.Inc()
		return s.say(redcon.AppendError(nil, fmt.Sprintf("ERR %s: %s belongs to an agent, and can only be read through redisproxy",
			one.name, ours(one))))
	}
	s.ask(one)
	reply, failure, err := s.compose(ctx, one)
	if err != nil {
		return err
	}
	if failure != nil {
		m.failed.Inc()
		return s.say(redcon.AppendError(nil, "ERR "+failure.Error()))
	}
	m.answered.Inc()
	return s.say(reply)
}

// ours is the first key that is an agent's.
func ours(one *step) string {
	for _, target := range one.targets {
		if target.Agent != "" {
			return target.Path
		}
	}
	return ""
}

// compose returns the reply to a command about agents' keys, maybe among others. A failure is told to the client.
func (s *session) compose(ctx context.Context, one *step) (reply []byte, failure, err error) {
	switch one.name {
	case "mget":
		return s.composeMany(ctx, one)
	case "exists":
		return s.composeExists(ctx, one)
	}
	value, failure, err := one.asked[0].Wait(ctx)
	if err != nil || failure != nil {
		return nil, failure, err
	}
	switch one.name {
	case "get":
		return s.orNull(value), nil, nil
	case "strlen":
		text, _ := resp.Text(value)
		return redcon.AppendInt(nil, int64(len(text))), nil, nil
	case "type":
		if value == nil {
			return []byte("+none\r\n"), nil, nil
		}
		return []byte("+string\r\n"), nil, nil
	default: // TTL, PTTL: how long it stays, the spoke knows alone; for us, it does not end
		if value == nil {
			return redcon.AppendInt(nil, -2), nil, nil
		}
		return redcon.AppendInt(nil, -1), nil, nil
	}
}

// orNull is a value, or what the client's protocol has for none.
func (s *session) orNull(value []byte) []byte {
	switch {
	case value != nil:
		return value
	case s.identity.Protocol == 3:
		return []byte("_\r\n")
	default:
		return []byte("$-1\r\n")
	}
}

// composeMany answers MGET: the hub's Redis is asked for its keys at once, while the agents are.
func (s *session) composeMany(ctx context.Context, one *step) (reply []byte, failure, err error) {
	hubs, refusal, err := s.hubs(ctx, one)
	if err != nil || refusal != nil {
		return refusal, nil, err
	}
	theirs := resp.Elements(hubs)
	reply = redcon.AppendArray(nil, len(one.targets))
	for i, target := range one.targets {
		if target.Agent == "" {
			if len(theirs) == 0 {
				return nil, nil, resp.ErrReply
			}
			reply, theirs = append(reply, theirs[0]...), theirs[1:]
			continue
		}
		value, failure, err := one.asked[i].Wait(ctx)
		if err != nil || failure != nil {
			return nil, failure, err
		}
		reply = append(reply, s.orNull(value)...)
	}
	return reply, nil, nil
}

func (s *session) composeExists(ctx context.Context, one *step) (reply []byte, failure, err error) {
	hubs, refusal, err := s.hubs(ctx, one)
	if err != nil || refusal != nil {
		return refusal, nil, err
	}
	count := 0
	if text, ok := resp.Text(hubs); ok {
		if _, err := fmt.Sscan(string(text), &count); err != nil {
			return nil, nil, resp.ErrReply
		}
	}
	for i, target := range one.targets {
		if target.Agent == "" {
			continue
		}
		value, failure, err := one.asked[i].Wait(ctx)
		if err != nil || failure != nil {
			return nil, failure, err
		}
		if value != nil {
			count++
		}
	}
	return redcon.AppendInt(nil, int64(count)), nil, nil
}

// hubs asks the hub's Redis for the keys that are no agent's. A refusal is Redis' own.
func (s *session) hubs(ctx context.Context, one *step) (reply, refusal []byte, err error) {
	args := one.args[:1:1]
	for i, target := range one.targets {
		if target.Agent == "" {
			args = append(args, one.args[i+1])
		}
	}
	if len(args) == 1 {
		return nil, nil, nil
	}
	reply, err = s.fetch(ctx, encode(args))
	if err == nil && reply[0] == '-' {
		return nil, reply, nil
	}
	return reply, nil, err
}

func encode(args [][]byte) []byte {
	p := redcon.AppendArray(nil, len(args))
	for _, arg := range args {
		p = redcon.AppendBulk(p, arg)
	}
	return p
}
