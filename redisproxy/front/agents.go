package front

import (
	"context"
	"strconv"

	"github.com/tidwall/redcon"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/resp"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/spokes"
)

// agentRead is a command that reads agents' keys, maybe among others.
type agentRead struct {
	name      string
	targets   []spokes.Target // one per key; those without an agent are the hub's
	questions []spokes.Read
	hubCounts bool // of EXISTS: Redis has been asked for the keys that are the hub's
}

// needsReply reports whether more than an error is of interest in what Redis replies.
func (a *agentRead) needsReply() bool { return a.name == "mget" || a.hubCounts }

// ask asks the agents, unless they have been. To ask for all that a client wants before the first answer is there has it wait
// for the slowest, and not for the sum.
func (a *agentRead) ask(agents *spokes.Spokes) {
	if a.questions != nil {
		return
	}
	a.questions = make([]spokes.Read, len(a.targets))
	for i, target := range a.targets {
		if target.Agent != "" {
			a.questions[i] = agents.StartRead(target)
		}
	}
}

// reply replies to a command that reads agents' keys, now that Redis has: as Redis did, if the client may not read or is in
// a transaction, and otherwise with the agents' values.
func (r *replies) reply(ctx context.Context, read *agentRead, hub []byte, kind byte) error {
	m := &r.server.metrics
	if kind == '-' {
		m.denied.Inc()
		return r.out.appendReply(hub, false)
	}
	if string(hub) == "+QUEUED\r\n" {
		return r.out.appendReply(hub, false)
	}
	r.accept() // at once: an agent may take longer than a client has to authenticate
	read.ask(r.server.options.Spokes)
	values := make([][]byte, len(read.targets))
	for i, target := range read.targets {
		if target.Agent == "" {
			continue
		}
		value, failure, err := read.questions[i].Wait(ctx)
		if err != nil {
			return err
		}
		if failure != nil {
			m.failed.Inc()
			return r.out.appendReply(redcon.AppendError(nil, "ERR "+failure.Error()), false)
		}
		values[i] = value
	}
	composed, err := r.compose(read, values, hub)
	if err != nil {
		return err
	}
	m.answered.Inc()
	return r.out.appendReply(composed, false)
}

func (r *replies) compose(read *agentRead, values [][]byte, hub []byte) ([]byte, error) {
	switch read.name {
	case "mget":
		return r.composeMany(read, values, hub)
	case "exists":
		return composeExists(values, hub)
	default:
		return r.composeOne(read.name, values[0]), nil
	}
}

// composeOne returns the reply to a command about one key.
func (r *replies) composeOne(name string, value []byte) []byte {
	switch {
	case name == "get":
		return r.orNull(value)
	case name == "strlen":
		text, _ := resp.Text(value)
		return redcon.AppendInt(nil, int64(len(text)))
	case name == "type" && value == nil:
		return []byte("+none\r\n")
	case name == "type":
		return []byte("+string\r\n")
	case value == nil: // TTL, PTTL
		return redcon.AppendInt(nil, -2)
	default: // how long it stays, the spoke knows alone; for us, it does not end
		return redcon.AppendInt(nil, -1)
	}
}

// orNull returns a value, or what the client's protocol has for none.
func (r *replies) orNull(value []byte) []byte {
	switch {
	case value != nil:
		return value
	case r.resp3.Load():
		return []byte("_\r\n")
	default:
		return []byte("$-1\r\n")
	}
}

// composeMany returns Redis' reply with the agents' values in place of those of their keys.
func (r *replies) composeMany(read *agentRead, values [][]byte, hub []byte) ([]byte, error) {
	elements := resp.Elements(hub)
	if len(elements) != len(values) {
		return nil, resp.ErrReply
	}
	composed := redcon.AppendArray(nil, len(values))
	for i, target := range read.targets {
		if target.Agent == "" {
			composed = append(composed, elements[i]...)
		} else {
			composed = append(composed, r.orNull(values[i])...)
		}
	}
	return composed, nil
}

// composeExists returns how many keys there are. Redis' reply is about those of the hub; it is empty if there are none.
func composeExists(values [][]byte, hub []byte) ([]byte, error) {
	count := 0
	if text, ok := resp.Text(hub); ok {
		var err error
		if count, err = strconv.Atoi(string(text)); err != nil {
			return nil, resp.ErrReply
		}
	}
	for _, value := range values {
		if value != nil {
			count++
		}
	}
	return redcon.AppendInt(nil, int64(count)), nil
}

// withoutAgentKeys returns a command without the keys that are agents', or nil if no others are left.
func withoutAgentKeys(args [][]byte, targets []spokes.Target) []byte {
	kept := args[:1:1]
	for i, target := range targets {
		if target.Agent == "" {
			kept = append(kept, args[i+1])
		}
	}
	if len(kept) == 1 {
		return nil
	}
	p := redcon.AppendArray(nil, len(kept))
	for _, arg := range kept {
		p = redcon.AppendBulk(p, arg)
	}
	return p
}

// firstAgentKey returns the first key that is an agent's.
func firstAgentKey(targets []spokes.Target) string {
	for _, target := range targets {
		if target.Agent != "" {
			return target.Path
		}
	}
	return ""
}
