package facets

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

//nolint:gochecknoglobals // flags of a test are
var (
	lives    = flag.Int("lives", 200, "how many random lives TestRandomIntentHistories runs")
	lifeSeed = flag.Uint64("life", 0, "run the one life with this seed")
)

// object is an application as an API server stores it.
type object struct {
	t   *testing.T
	doc string
}

func newObject(t *testing.T, uid, annotations string) *object {
	t.Helper()
	return &object{t, fmt.Sprintf(`{"metadata":{"name":"app","namespace":"a","uid":%q,"resourceVersion":"1","annotations":%s},"spec":{"project":"default"}}`, uid, annotations)}
}

// app returns what is kept of the object.
func (o *object) app() *argocd.App {
	var a argocd.Application
	require.NoError(o.t, json.Unmarshal([]byte(o.doc), &a))
	return argocd.Reduce(true)(&a, nil)
}

// apply applies a patch of this package as the API server does.
func (o *object) apply(p argocd.Patch) {
	if p == nil {
		return
	}
	body, err := json.Marshal(p)
	require.NoError(o.t, err)
	patch, err := jsonpatch.DecodePatch(body)
	require.NoError(o.t, err)
	after, err := patch.Apply([]byte(o.doc))
	require.NoError(o.t, err, "%s to %s", body, o.doc)
	o.set(string(after))
}

// merge changes the object as others do, by a merge patch.
func (o *object) merge(patch string) {
	after, err := jsonpatch.MergePatch([]byte(o.doc), []byte(patch))
	require.NoError(o.t, err)
	o.set(string(after))
}

// set stores a document with its keys sorted.
func (o *object) set(doc string) {
	var v any
	require.NoError(o.t, json.Unmarshal([]byte(doc), &v))
	b, err := json.Marshal(v)
	require.NoError(o.t, err)
	o.doc = string(b)
}

// life is one application on a hub and its spoke, with the users and controllers around it. Each of its steps is one
// write of somebody; what a step reads is what is there, or what was there before.
type life struct {
	t    *testing.T
	rand *rand.Rand
	hub  *object
	spok *object
	n    int

	intents *[]byte        // under way to the spoke
	status  *statusPayload // under way to the hub

	asked     []string       // the operations that a user requested and the hub took
	ran       map[string]int // how often the spoke's controller ran each
	refreshes map[string]int // how often the spoke's controller refreshed, by kind
	wanted    string         // the refresh that was asked for last, if the spoke has not done it since
	ended     map[string]bool
	toEnd     map[string]bool
}

func newLife(t *testing.T, seed uint64) *life {
	return &life{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)),
		hub:  newObject(t, "hub-uid", `{}`),
		spok: newObject(t, "spoke-uid", `{"argocd.argoproj.io/source-uid":"hub-uid"}`),
		ran:  map[string]int{}, refreshes: map[string]int{}, ended: map[string]bool{}, toEnd: map[string]bool{},
	}
}

// sync asks for an operation on the hub as argocd-server does, which refuses while there is one.
func (l *life) sync() {
	if l.hub.app().Operation != nil {
		return
	}
	l.n++
	name := fmt.Sprint("op", l.n)
	l.asked = append(l.asked, name)
	l.hub.merge(fmt.Sprintf(`{"operation":{"sync":{"revision":%q}},"status":{"operationState":null}}`, name))
}

// refresh asks for a refresh as argocd-server does.
func (l *life) refresh(kind string) {
	l.wanted = kind
	l.hub.merge(fmt.Sprintf(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":%q}}}`, kind))
}

// terminate ends the operation that the hub shows as argocd-server does.
func (l *life) terminate() {
	app := l.hub.app()
	if app.Operation == nil || app.Status.Phase == "" {
		return
	}
	l.toEnd[app.Status.StartedAt] = true
	l.hub.merge(`{"status":{"operationState":{"phase":"Terminating"}}}`)
}

// wipe takes away the annotations that an ApplicationSet does not preserve.
func (l *life) wipe() {
	kept := map[string]string{}
	for k, v := range l.hub.app().Annotations {
		if k == argocd.AnnotationRefresh || k == argocd.AnnotationHydrate {
			kept[k] = v
		}
	}
	b, err := json.Marshal(kept)
	require.NoError(l.t, err)
	l.hub.merge(`{"metadata":{"annotations":null}}`)
	l.hub.merge(`{"metadata":{"annotations":` + string(b) + `}}`)
}

// assignIDs is the principal's IntentIDAssigner.
func (l *life) assignIDs() {
	l.n++
	l.hub.apply(withIntentIDs(l.hub.app(), "a", fmt.Sprint("name", l.n)))
}

// deliver brings the hub's intents, or that there are none, to the spoke: as they are, or as they were when the last
// message about them was made, which is still under way.
func (l *life) deliver() {
	payload := intentsOf(l.hub.app(), "a")
	if l.intents != nil {
		payload, l.intents = *l.intents, nil
	}
	if payload == nil {
		if app := l.spok.app(); app.Annotations[argocd.AnnotationIntent] != "" {
			l.spok.merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, argocd.AnnotationIntent))
		}
		return
	}
	var in intents
	require.NoError(l.t, json.Unmarshal(payload, &in))
	patch, err := take(l.spok.app(), takenBy(l.spok.app()), "", in, converge.VersionOf(payload))
	require.NoError(l.t, err)
	l.spok.apply(patch)
}

// report brings the spoke's status to the hub, as it is or as it was.
func (l *life) report() {
	p := l.said()
	if l.status != nil {
		p, l.status = *l.status, nil
	}
	patch, err := statusReplica{Side: Side{agent: "a"}}.show(l.hub.app(), p)
	require.NoError(l.t, err)
	l.hub.apply(patch)
}

func (l *life) said() statusPayload {
	p, _, err := statusSource{}.statusOf(l.spok.app())
	require.NoError(l.t, err)
	return p
}

// send makes the messages that arrive next; those that were made before arrive first.
func (l *life) send() {
	if l.intents == nil {
		l.intents = new(intentsOf(l.hub.app(), "a"))
	}
	if l.status == nil {
		l.status = new(l.said())
	}
}

// control is one step of the spoke's application controller.
func (l *life) control() {
	app := l.spok.app()
	if kind, ok := app.Annotations[argocd.AnnotationRefresh]; ok && l.rand.IntN(2) == 0 {
		require.Contains(l.t, []string{"normal", "hard"}, kind)
		l.refreshes[kind]++
		if l.wanted == kind || kind == "hard" { // a hard refresh does for both
			l.wanted = ""
		}
		l.spok.merge(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":null}}}`)
		return
	}
	switch {
	case app.Operation == nil:
	case app.Status.Phase == argocd.PhaseTerminating:
		l.ended[app.Status.StartedAt] = true
		l.spok.merge(`{"operation":null,"status":{"operationState":{"phase":"Failed"}}}`)
	case app.Status.Phase != argocd.PhaseRunning:
		l.n++
		var op struct {
			Sync struct{ Revision string }
		}
		require.NoError(l.t, json.Unmarshal(app.Operation, &op))
		l.ran[op.Sync.Revision]++
		l.spok.merge(fmt.Sprintf(`{"status":{"operationState":{"phase":"Running","startedAt":"t%d","operation":%s}}}`, l.n, app.Operation))
	default:
		l.spok.merge(`{"operation":null,"status":{"operationState":{"phase":"Succeeded"}}}`)
	}
}

// auto begins an operation of the spoke's own.
func (l *life) auto() {
	if l.spok.app().Operation == nil {
		l.n++
		l.spok.merge(fmt.Sprintf(`{"operation":{"sync":{"revision":"auto%d"}},"status":{"operationState":null}}`, l.n))
	}
}

// again does a step twice, as after a crash before its answer was heard.
func (l *life) again(step func()) { step(); step() }

func (l *life) step() {
	steps := []func(){
		l.sync, l.sync, func() { l.refresh("normal") }, func() { l.refresh("hard") }, l.terminate, l.wipe, l.auto,
		l.assignIDs, l.assignIDs, l.deliver, l.deliver, l.deliver, l.report, l.report, l.report, l.control, l.control, l.control,
		func() { l.again(l.deliver) }, func() { l.again(l.report) }, l.send,
	}
	steps[l.rand.IntN(len(steps))]()
}

// quiet lets everybody finish. An ApplicationSet goes on wiping.
func (l *life) quiet() {
	for range 40 {
		for _, step := range []func(){l.assignIDs, l.wipe, l.assignIDs, l.deliver, l.control, l.wipe, l.control, l.assignIDs, l.report} {
			step()
		}
	}
}

func (l *life) check() {
	hub, spoke := l.hub.app(), l.spok.app()
	for _, name := range l.asked {
		require.Equal(l.t, 1, l.ran[name], "%s ran; of %v", name, l.ran)
	}
	require.Empty(l.t, l.wanted, "a refresh was lost")
	require.Nil(l.t, hub.Operation, "%s", hub.Operation)
	require.Nil(l.t, spoke.Operation)
	require.Empty(l.t, intentsOf(hub, "a"))
	require.NotContains(l.t, hub.Annotations, argocd.AnnotationRefresh)
	require.NotContains(l.t, spoke.Annotations, argocd.AnnotationIntent)
	require.Equal(l.t, spoke.Status.Version, hub.Status.VersionOf("a"))
	require.Equal(l.t, []string{argocd.AnnotationSourceUID}, slices.Collect(maps.Keys(spoke.Annotations)))
}

// TestRandomIntentHistories has users and controllers do random things, in any order, and everything between them done late
// or twice. Every operation runs once, no refresh is lost, and in the end nothing is left over.
func TestRandomIntentHistories(t *testing.T) {
	t.Parallel()
	start := rand.Uint64()
	for i := range uint64(*lives) {
		seed := start + i
		if *lifeSeed != 0 {
			seed = *lifeSeed
		}
		if !t.Run(fmt.Sprint("life=", seed), func(t *testing.T) {
			l := newLife(t, seed)
			for range 10 + l.rand.IntN(60) {
				l.step()
			}
			l.quiet()
			l.check()
		}) {
			return
		}
	}
}
