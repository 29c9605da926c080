package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// What a caller may reach, beside agents by their names.
const (
	reachSame  = "{agent}" // the agent that its SPIFFE ID names
	reachToken = "token"   // the agent that its bearer token is for
	reachAll   = "*"
)

// DefaultCallers are those whose certificates argocd-agentctl issues; see Caller.
func DefaultCallers() []string {
	return []string{"spiffe://" + CallerTrustDomain + callerPath + "/{agent}={agent}", "spiffe://" + CallerTrustDomain + callerPath + "=token"}
}

// Callers says which workloads of the hub, by their SPIFFE IDs, may reach which agents through kubeproxy. The zero value lets nobody.
type Callers struct{ rules []callerRule }

type callerRule struct {
	ids   Template
	reach string
}

// Reach is what one caller may reach.
type Reach struct {
	// Caller is what logs call it: the agent that its SPIFFE ID names, or the ID.
	Caller string
	// Agents are those that it may reach.
	Agents []Agent
	// Token says that it may reach the agent that its bearer token is for.
	Token bool
	// All says that it may reach every agent.
	All bool
}

// ParseCallers reads entries such as "spiffe://hub.test/ns/argocd/sa/argocd-server=*". What an ID may reach is added up. An error says
// what an entry looks like.
func ParseCallers(entries []string) (Callers, error) {
	var c Callers
	for _, entry := range entries {
		at := strings.LastIndexByte(entry, '=')
		if at < 0 {
			return Callers{}, fmt.Errorf("%q: want a SPIFFE ID and what it may reach, ID=*, ID=token, ID={agent} or ID=NAME", entry)
		}
		text, reach := entry[:at], entry[at+1:]
		var variables []string
		switch reach {
		case reachAll, reachToken:
		case reachSame:
			variables = []string{"agent"}
		default:
			if _, err := ParseAgent(reach); err != nil {
				return Callers{}, fmt.Errorf("%q: after the last = it has to be *, token, {agent} or the name of an agent: %w", entry, err)
			}
		}
		ids, err := ParseTemplate(text, "", variables...)
		if err != nil {
			return Callers{}, fmt.Errorf("%q: %w", entry, err)
		}
		c.rules = append(c.rules, callerRule{ids, reach})
	}
	return c, nil
}

// errNoCaller means that a SPIFFE ID is that of no caller.
var errNoCaller = errors.New("is of no form in the setting --callers")

// Of returns what the caller that a proof names may reach. That the proof is good is for the caller of this function to see to.
func (c Callers) Of(proof Proof) (Reach, error) {
	uri, err := proof.URI()
	if err != nil {
		return Reach{}, err
	}
	id, err := spiffeid.FromString(uri)
	if err != nil {
		return Reach{}, fmt.Errorf("its URI %q is no SPIFFE ID: %w", shorten(uri, maxShownID), err)
	}
	reach, known := Reach{Caller: uri}, false
	for _, rule := range c.rules {
		values, ok := rule.ids.Match(id)
		if !ok {
			continue
		}
		known = true
		switch rule.reach {
		case reachAll:
			reach.All = true
		case reachToken:
			reach.Token = true
		case reachSame:
			agent, err := ParseAgent(values["agent"])
			if err != nil {
				return Reach{}, fmt.Errorf("its SPIFFE ID %q: %w", shorten(uri, maxShownID), err)
			}
			reach.Caller, reach.Agents = string(agent), append(reach.Agents, agent)
		default:
			reach.Agents = append(reach.Agents, Agent(rule.reach))
		}
	}
	if !known {
		return Reach{}, fmt.Errorf("its SPIFFE ID %q %w", shorten(uri, maxShownID), errNoCaller)
	}
	slices.Sort(reach.Agents)
	reach.Agents = slices.Compact(reach.Agents)
	return reach, nil
}

// May reports whether an agent is among those that may be reached without a token.
func (r Reach) May(agent Agent) bool { return r.All || slices.Contains(r.Agents, agent) }

// Only returns the agent that is the only one that may be reached; empty if there are others, or none.
func (r Reach) Only() Agent {
	if r.All || r.Token || len(r.Agents) != 1 {
		return ""
	}
	return r.Agents[0]
}
