package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
)

// atOnce is how many agents are examined at a time: one that is slow to answer is not to keep the others waiting.
const atOnce = 8

// ExamineAll walks the hops of the hub, and then those of each agent: all that the hub knows or, without a hub, those of the clusters. spokes
// are the clusters of agents by their names; without its cluster an agent is looked at from the hub only. each is called in order, with every
// check of the hub, and with all of an agent together. An agent's checks name it.
func ExamineAll(ctx context.Context, o Options, spokes map[string]*cluster.Client, each func([]checks.Check)) []checks.Check {
	w := &walk{Options: o, own: new(ownRights)}
	defer w.close()
	t := &teller{each: func(c checks.Check) { each([]checks.Check{c}) }}
	var known []agents.Agent
	if o.Hub == nil {
		for _, name := range slices.Sorted(maps.Keys(spokes)) {
			known = append(known, agents.Agent{Name: name})
		}
	} else {
		w.Presence = sync.OnceValue(o.Presence)
		if w.atHub(ctx, t); w.Hub == nil {
			return t.all
		}
		t.tell(w.hubRedises(ctx)...)
		var made checks.Check
		if known, made = w.list(ctx); made.Result != checks.OK {
			t.tell(made)
		}
	}
	w.each(ctx, known, spokes, func(made []checks.Check) {
		each(made)
		t.all = append(t.all, made...)
	})
	return t.all
}

// list returns all agents that the hub knows, once each.
func (w *walk) list(ctx context.Context) ([]agents.Agent, checks.Check) {
	const name = "agents"
	if c, lacks := w.lacking(ctx, name, w.Hub, append(hubSecrets(), listSecrets())...); lacks {
		return nil, c
	}
	all, err := agents.List(ctx, w.Hub, "", notAsked)
	if err == nil && len(all) == 0 {
		return nil, checks.Skip(name, "there is none: create one with argocd-agentctl agent create")
	}
	var once []agents.Agent
	for i := range all {
		if last := len(once) - 1; last >= 0 && once[last].Name == all[i].Name {
			once[last].Problems = append(once[last].Problems, fmt.Sprintf("Secret %s is about this agent too: delete one of them", all[i].Secret))
			continue
		}
		once = append(once, all[i])
	}
	return once, checks.Err(name, "", err)
}

// each walks the hops of each agent, several at a time, and tells of them in order.
func (w *walk) each(ctx context.Context, known []agents.Agent, spokes map[string]*cluster.Client, tell func([]checks.Check)) {
	made := make([][]checks.Check, len(known))
	done := make([]chan struct{}, len(known))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range known {
		done[i] = make(chan struct{})
	}
	var starting sync.WaitGroup
	defer starting.Wait()
	starting.Go(func() {
		for i := range known {
			group.Go(func() error {
				defer close(done[i])
				made[i] = w.one(ctx, known[i], spokes[known[i].Name])
				return nil
			})
		}
		_ = group.Wait() // none fails
	})
	for i := range known {
		<-done[i]
		tell(made[i])
	}
}

// one walks the hops of one agent of several.
func (w *walk) one(ctx context.Context, known agents.Agent, spoke *cluster.Client) []checks.Check {
	own := *w
	own.Agent, own.Spoke, own.opened, own.known = known.Name, spoke, nil, &known
	defer own.close()
	t := teller{each: func(checks.Check) {}}
	own.atSpoke(ctx, &t)
	own.between(ctx, &t)
	own.redises(ctx, &t)
	for i := range t.all {
		t.all[i].Agent = known.Name
	}
	return t.all
}

// Summary is the checks of one agent in one: the first that failed, or how many there are.
func Summary(all []checks.Check) checks.Check {
	if failed := First(all); failed != nil {
		return *failed
	}
	name := "agent " + all[0].Agent
	skipped := 0
	for _, c := range all {
		if c.Result == checks.Skipped {
			skipped++
		}
	}
	detail := fmt.Sprintf("hops that work: %d, that were not looked at: %d", len(all)-skipped, skipped)
	if skipped == len(all) {
		return checks.Skip(name, "none of its hops can be looked at from here; --output wide says why")
	}
	return checks.Of(name, detail)
}
