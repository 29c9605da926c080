package facets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// intents are what a user on the hub asks of an application on its spoke.
type intents struct {
	Operation     json.RawMessage `json:"operation,omitempty"`
	OperationName string          `json:"operationName,omitempty"`
	Refresh       string          `json:"refresh,omitempty"` // "normal" or "hard"
	Hydrate       string          `json:"hydrate,omitempty"` // what argocd-server asks for along with a refresh
	RefreshName   string          `json:"refreshName,omitempty"`
	// Terminate names, by its start, an operation that is to be ended.
	Terminate string `json:"terminate,omitempty"`
}

// intentsOf returns what is asked of an agent's application on the hub, in its JSON encoding; nil if nothing is, or nothing
// that has its name yet. What was asked of another agent is not asked of this one.
func intentsOf(app *argocd.App, agent string) []byte {
	var in intents
	if name := argocd.OperationInfo(app.Operation, argocd.InfoIntent); name != "" && isAskedOf(name, agent) {
		in.Operation, in.OperationName = app.Operation, name
	}
	if kind, name, _ := refreshOf(app); name != "" {
		in.Refresh, in.RefreshName, in.Hydrate = kind, name, app.Annotations[argocd.AnnotationHydrate]
	}
	if app.Status.Phase == argocd.PhaseTerminating && slices.Contains([]string{"", agent}, app.Status.ShownFor()) {
		in.Terminate = app.Status.StartedAt
	}
	if app.Deleting || in.OperationName == "" && in.RefreshName == "" && in.Terminate == "" {
		return nil
	}
	payload, err := json.Marshal(in)
	if err != nil {
		return nil // an operation is JSON, since it came as such
	}
	return payload
}

// refreshOf returns the kind and, once it has one, the name of the refresh that is asked for on the hub, and whether one is.
// The name follows the kind in the annotation that asks. That is the only one that an ApplicationSet leaves alone, and
// whoever asks again, for a hard refresh after a normal one, writes the name over: it is another refresh.
func refreshOf(app *argocd.App) (kind, name string, asked bool) {
	value, asked := app.Annotations[argocd.AnnotationRefresh]
	kind, name, _ = strings.Cut(value, "/")
	return kind, name, asked
}

// intentSource is the hub's half of the application-intent facet.
type intentSource struct{ Side }

var _ converge.Source = intentSource{}

// All yields what is asked of the agent's applications.
func (s intentSource) All() iter.Seq2[converge.Key, converge.State] { return s.all(s.intentState) }

// intentState is the state of what is asked of a hub's application, zero if nothing is.
func (s intentSource) intentState(app *argocd.App) converge.State {
	payload := intentsOf(app, s.agent)
	if payload == nil {
		return converge.State{}
	}
	return s.state(app, converge.VersionOf(payload))
}

// Project returns what is asked of an application.
func (s intentSource) Project(key converge.Key) (converge.Object, bool) {
	app, ok := s.get(key)
	if !ok {
		return converge.Object{}, false
	}
	state := s.intentState(app)
	return converge.Object{State: state, Payload: intentsOf(app, s.agent)}, state != converge.State{}
}

// ReportResult withdraws what the spoke refuses to do. A condition on the application says so until something that is asked
// later is taken. An answer while nothing is asked is to a withdrawal, of which there is nothing to report; whatever was taken
// and is over by now has cleared the refusal along with itself, see statusReplica.show.
func (s intentSource) ReportResult(ctx context.Context, key converge.Key, r converge.Result) error {
	_, err := s.changeShared(ctx, key, func(app *argocd.App) (argocd.Patch, error) {
		if app == nil || intentsOf(app, s.agent) == nil {
			return nil, nil
		}
		var patch argocd.Patch
		switch r.Code {
		case converge.Done:
			ofIntent.clear(app, &patch)
		case converge.Refused:
			ofIntent.set(app, &patch, r.Reason)
			if argocd.OperationInfo(app.Operation, argocd.InfoIntent) != "" {
				patch.Remove("operation")
			}
			withdrawRefresh(app, &patch)
		case converge.Retry: // that says nothing yet
		}
		return patch, nil
	})
	return err
}

// HasRefusedCondition returns false: an intent that was not refused says nothing about an earlier one.
func (s intentSource) HasRefusedCondition(converge.Key) bool { return false }

// withdrawRefresh adds to a patch what ends the asking for a refresh.
func withdrawRefresh(app *argocd.App, patch *argocd.Patch) {
	for _, a := range []string{argocd.AnnotationRefresh, argocd.AnnotationHydrate} {
		if _, ok := app.Annotations[a]; ok {
			patch.Remove("metadata", "annotations", a)
		}
	}
}

// taken is what an application on a spoke has taken from the hub and the hub has not withdrawn. It is kept in an
// annotation.
type taken struct {
	Version   string `json:"version,omitempty"` // of the whole; empty if the operation has to wait
	Operation string `json:"operation,omitempty"`
	Refresh   string `json:"refresh,omitempty"`
	At        string `json:"at,omitempty"` // when the operation was taken, RFC 3339
}

func takenBy(app *argocd.App) taken {
	var t taken
	if a := app.Annotations[argocd.AnnotationIntent]; a == "" || json.Unmarshal([]byte(a), &t) != nil {
		return taken{}
	}
	return t
}

// neverStarted reports whether the operation that an application has taken never started: it is gone, and the last finished
// one started before it was taken. The application controller ends an operation by name: if the application was deleted
// meanwhile and created again, with another operation, it takes that one away. Times are in whole seconds, of two clocks of
// one cluster; if they do not decide it, the operation is taken to have run, since nothing may run twice.
func neverStarted(app *argocd.App, t taken) bool {
	if t.Operation == "" || app.Operation != nil || app.Status.RanIntent == t.Operation {
		return false
	}
	at, err := time.Parse(time.RFC3339, t.At)
	if err != nil {
		return false
	}
	started, err := time.Parse(time.RFC3339, app.Status.StartedAt)
	return err == nil && started.Before(at)
}

// intentReplica is the spoke's half of the application-intent facet.
type intentReplica struct {
	Side

	taken *takenIntents
	// toHub, if set, maps the spoke's namespace to the hub's. Intents name objects as the hub does.
	toHub func() argocd.Move
	// refuseSources says that operations are refused that deploy something else than the application's own sources.
	refuseSources bool
}

// newIntentReplica returns the spoke's half of the application-intent facet.
func newIntentReplica(s Side) intentReplica {
	return intentReplica{Side: s, taken: &takenIntents{taken: make(map[converge.Key]takenIntent)}}
}

// takenIntents remembers what applications have taken, in case somebody removes the annotations that say so, or deletes the
// application, which is then created again. Nothing may run twice because of that. What the hub withdraws is forgotten.
type takenIntents struct {
	mu    sync.Mutex
	taken map[converge.Key]takenIntent // guarded by mu
}

// takenIntent is what one application has taken.
type takenIntent struct {
	uid     types.UID
	taken   taken
	started string // the operation among that, once it has started; of any application of that name
}

// read returns what an application has taken, by its annotation or from memory.
func (n *takenIntents) read(key converge.Key, app *argocd.App) taken {
	if app.Annotations[argocd.AnnotationIntent] != "" {
		return takenBy(app)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := n.taken[key]; m.uid == app.UID {
		return m.taken
	}
	return taken{}
}

func (n *takenIntents) write(key converge.Key, app *argocd.App) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.taken[key]
	m.uid, m.taken = app.UID, takenBy(app)
	n.taken[key] = m
}

// startedOf returns the operation that was taken and is known to have started, empty if none is.
func (n *takenIntents) startedOf(key converge.Key) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.taken[key].started
}

// noteStarted remembers an operation that was taken and has started.
func (n *takenIntents) noteStarted(key converge.Key, app *argocd.App) {
	name := app.Status.RanIntent
	if name == "" || takenBy(app).Operation != name {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.taken[key]
	m.started = name
	n.taken[key] = m
}

func (n *takenIntents) forget(key converge.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, key)
}

var _ converge.Replica = intentReplica{}

// noteStarted is called on every change of an application on the spoke.
func (r intentReplica) noteStarted(key converge.Key, app *argocd.App) { r.taken.noteStarted(key, app) }

// All yields what was taken from the hub and is not yet withdrawn.
func (r intentReplica) All() iter.Seq2[converge.Key, converge.State] { return r.all(r.takenState) }

// Held returns what was taken for one application.
func (r intentReplica) Held(key converge.Key) converge.State { return r.held(key, r.takenState) }

// takenState is the state of what was taken for a spoke's application, zero if nothing was.
func (r intentReplica) takenState(app *argocd.App) converge.State {
	if app == nil {
		return converge.State{}
	}
	t := takenBy(app)
	version, err := converge.ParseVersion(t.Version)
	if err != nil || neverStarted(app, t) {
		return converge.State{}
	}
	return r.state(app, version)
}

// errNotThere and errOccupied are worth waiting for.
var (
	errNotThere = errors.New("the application is not there yet")
	errOccupied = errors.New("another operation is in progress")
)

// Apply takes what is asked, and writes down in the same write that it did.
func (r intentReplica) Apply(ctx context.Context, key converge.Key, obj converge.Object) (converge.State, error) {
	var in intents
	if err := strictjson.Unmarshal(obj.Payload, &in); err != nil {
		return converge.State{}, fmt.Errorf("decode the intent: %w: %w", converge.ErrRefused, err)
	}
	if in.OperationName != "" && !argocd.IsOperation(in.Operation) {
		return converge.State{}, fmt.Errorf("%w: it names an operation, and what it has for one is no JSON object with anything in it", converge.ErrRefused)
	}
	if r.toHub != nil {
		var err error
		if in.Operation, err = r.toHub().Back().Operation(in.Operation); err != nil {
			return converge.State{}, fmt.Errorf("%w: %w", converge.ErrRefused, err)
		}
	}
	app, err := r.changeShared(ctx, key, func(app *argocd.App) (argocd.Patch, error) {
		if app == nil || r.uid(app) == "" || r.uid(app) != obj.UID || app.Deleting {
			return nil, errNotThere
		}
		if err := r.checkSources(app, in); err != nil {
			return nil, err
		}
		return take(app, r.taken.read(key, app), r.taken.startedOf(key), in, obj.Version)
	})
	if err == nil {
		r.taken.write(key, app)
	}
	state := r.takenState(app)
	if err == nil && state != obj.State {
		err = errOccupied
	}
	return state, err
}

// checkSources returns why what is asked of an application is refused for what it would deploy, nil if it is not.
func (r intentReplica) checkSources(app *argocd.App, in intents) error {
	if !r.refuseSources || in.OperationName == "" {
		return nil
	}
	field, err := argocd.OwnSources(in.Operation, app.Spec)
	if err != nil {
		return fmt.Errorf("%w: %w", converge.ErrRefused, err)
	}
	if field == "" {
		return nil
	}
	return fmt.Errorf("%w: its %s is not what the application %q has on the spoke, and the agent runs with --refuse-intent-sources: "+
		"sync without manifests or sources, or change the application on the spoke", converge.ErrRefused, field, app.Name.Name)
}

// take returns the patch by which an application takes what is asked of it and was not taken before, nil if it has noted all
// that. t is what it has taken. started is the operation among that which is known to have started: it does not run again.
// While another operation is in progress all but the operation is taken, since what is asked may be to end that one.
func take(app *argocd.App, t taken, started string, in intents, version converge.Version) (argocd.Patch, error) {
	again := neverStarted(app, t)
	noted := takenBy(app) == t
	if t.Version == version.String() && noted && !again {
		return nil, nil
	}
	var patch argocd.Patch
	next := taken{Version: version.String(), Operation: in.OperationName, Refresh: in.RefreshName, At: t.At}
	ran := []string{started, app.Status.RanIntent, argocd.OperationInfo(app.Operation, argocd.InfoIntent)}
	if !again {
		ran = append(ran, t.Operation)
	}
	switch {
	case in.OperationName == "" || slices.Contains(ran, in.OperationName):
	case app.Operation != nil:
		next.Version, next.Operation = "", t.Operation
	default:
		patch.Replace(in.Operation, "operation")
		next.At = time.Now().UTC().Format(time.RFC3339)
	}
	annotations := maps.Clone(orEmpty(app.Annotations))
	if in.RefreshName != "" && in.RefreshName != t.Refresh {
		annotations[argocd.AnnotationRefresh] = in.Refresh
		if in.Hydrate != "" && app.Hydrates() {
			annotations[argocd.AnnotationHydrate] = in.Hydrate
		}
	}
	if in.Terminate != "" && in.Terminate == app.Status.StartedAt && app.Status.Phase == argocd.PhaseRunning {
		patch.Replace(argocd.PhaseTerminating, "status", "operationState", "phase")
	}
	encoded, err := json.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("encode what was taken: %w", err)
	}
	if next != t || !noted {
		annotations[argocd.AnnotationIntent] = string(encoded)
		patch.Replace(annotations, "metadata", "annotations")
	}
	return patch, nil
}

// Remove forgets what the hub has withdrawn. What runs runs on.
func (r intentReplica) Remove(ctx context.Context, key converge.Key, uid string) (converge.State, error) {
	r.taken.forget(key)
	app, err := r.changeShared(ctx, key, func(app *argocd.App) (argocd.Patch, error) {
		if app == nil || app.Annotations[argocd.AnnotationIntent] == "" || uid != "" && r.uid(app) != uid {
			return nil, nil
		}
		var patch argocd.Patch
		patch.Remove("metadata", "annotations", argocd.AnnotationIntent)
		return patch, nil
	})
	return r.takenState(app), err
}
