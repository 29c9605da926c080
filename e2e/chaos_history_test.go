package e2e_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// hubSide is the side of what is seen on the hub; the side of a spoke is its agent's name.
const hubSide = "hub"

// infoSync is the name of the info by which each sync can be told from others.
const infoSync = "chaos"

// history is what was seen and done, by Application: agent/name, as both sides call it here.
type history struct {
	began   time.Time
	changed chan struct{} // of capacity one: an Application was seen to change

	mu      sync.Mutex                            // guards all below
	past    map[string][]string                   // by Application, and "weather"
	count   map[string]int                        // how often each kind of mischief happened
	present map[place]*unstructured.Unstructured  // as seen last
	runs    map[string]map[string]map[string]bool // by sync, then by UID on the spoke: when it was seen to start
	taken   map[string]map[string]int             // by sync, then by UID on the spoke: how often it was seen to be given
}

// place is an Application on one side.
type place struct{ side, key string }

func newHistory() *history {
	return &history{
		began: time.Now(), changed: make(chan struct{}, 1),
		past: make(map[string][]string), count: make(map[string]int),
		present: make(map[place]*unstructured.Unstructured),
		runs:    make(map[string]map[string]map[string]bool), taken: make(map[string]map[string]int),
	}
}

// follow returns what follows the Applications of one side, to be run until its context ends.
func (h *history) follow(t *testing.T, side string, c *lab.Cluster) func(context.Context) {
	t.Helper()
	informer := dynamicinformer.NewFilteredDynamicInformer(
		c.Dynamic, argocd.All("").Resource, "", 0, cache.Indexers{}, nil).Informer()
	require.NoError(t, informer.SetTransform(func(object any) (any, error) {
		if u, ok := object.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
		}
		return object, nil
	}))
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { h.see(side, nil, now.(*unstructured.Unstructured)) },
		UpdateFunc: func(old, now any) { h.see(side, old.(*unstructured.Unstructured), now.(*unstructured.Unstructured)) },
		DeleteFunc: func(old any) {
			if unknown, ok := old.(cache.DeletedFinalStateUnknown); ok {
				old = unknown.Obj
			}
			h.see(side, old.(*unstructured.Unstructured), nil)
		},
	})
	require.NoError(t, err)
	return func(ctx context.Context) { informer.Run(ctx.Done()) }
}

// see takes in what changed on one side.
func (h *history) see(side string, old, now *unstructured.Unstructured) {
	object := now
	if now == nil {
		object = old
	}
	key := side + "/" + object.GetName()
	if side == hubSide {
		key = object.GetNamespace() + "/" + object.GetName()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.present[place{side, key}] = now
	if changes := changes(old, now); changes != "" {
		h.add(key, fmt.Sprintf("%-5s %s: %s", side, object.GetResourceVersion(), changes))
	}
	if now != nil && side != hubSide {
		h.tally(old, now)
	}
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// tally takes in whether an Application of a spoke was given a sync or began one. One that is taken away before it began was
// not given: the controller does that, which ends by name what ran on an Application that was deleted meanwhile. h.mu is
// held.
func (h *history) tally(old, now *unstructured.Unstructured) {
	uid := string(now.GetUID())
	given := ""
	if old != nil && old.GetUID() == now.GetUID() {
		given = syncOf(old, "operation")
	}
	if id := syncOf(now, "operation"); id != "" && id != given {
		if h.taken[id] == nil {
			h.taken[id] = make(map[string]int)
		}
		h.taken[id][uid]++
	} else if id == "" && given != "" && len(h.runs[given][uid]) == 0 && syncOf(now, "status", "operationState", "operation") != given {
		h.taken[given][uid]--
	}
	if id := syncOf(now, "status", "operationState", "operation"); id != "" {
		if h.runs[id] == nil {
			h.runs[id] = make(map[string]map[string]bool)
		}
		if h.runs[id][uid] == nil {
			h.runs[id][uid] = make(map[string]bool)
		}
		started, _, _ := unstructured.NestedString(now.Object, "status", "operationState", "startedAt")
		h.runs[id][uid][started] = true
	}
}

// syncOf returns which sync the operation at a path is.
func syncOf(object *unstructured.Unstructured, path ...string) string {
	infos, _, _ := unstructured.NestedSlice(object.Object, append(slices.Clone(path), "info")...)
	for _, i := range infos {
		if info, ok := i.(map[string]any); ok && info["name"] == infoSync {
			value, _ := info["value"].(string)
			return value
		}
	}
	return ""
}

// changes says in a line what is different.
func changes(old, now *unstructured.Unstructured) string {
	if now == nil {
		return "is gone"
	}
	var text []string
	before := map[string]any{}
	if old != nil && old.GetUID() == now.GetUID() {
		before = old.Object
	} else {
		text = append(text, "is new, UID "+string(now.GetUID()))
	}
	for _, path := range []string{
		"metadata.deletionTimestamp", "metadata.finalizers", "metadata.labels", "metadata.annotations", "spec", "operation",
		"status.operationState.phase", "status.operationState.startedAt", "status.sync.status", "status.health",
		"status.reconciledAt", "status.conditions",
	} {
		fields := strings.Split(path, ".")
		a, _, _ := unstructured.NestedFieldNoCopy(before, fields...)
		b, _, _ := unstructured.NestedFieldNoCopy(now.Object, fields...)
		if !reflect.DeepEqual(a, b) {
			text = append(text, fmt.Sprintf("%s=%v", path, b))
		}
	}
	return strings.Join(text, " ")
}

// do notes what somebody did with an Application.
func (h *history) do(key, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(key, "> "+what)
}

// note notes what happened to a part.
func (h *history) note(part, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add("weather", part+" "+what)
	h.count[part+": "+strings.Fields(what)[0]]++
}

// add adds a line. h.mu is held.
func (h *history) add(key, line string) {
	h.past[key] = append(h.past[key], fmt.Sprintf("%8.3f %s", time.Since(h.began).Seconds(), line))
}

func (h *history) counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

func (h *history) lines(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.past[key], "\n")
}

// tell tells all about one Application: its history, and both sides as they are.
func (h *history) tell(key string) string {
	text := h.lines(key)
	agent, _, _ := strings.Cut(key, "/")
	for _, side := range []string{hubSide, agent} {
		object := h.at(side, key)
		if object == nil {
			text += fmt.Sprintf("\n--- %s: there is none\n", side)
			continue
		}
		data, err := yaml.Marshal(object.Object)
		if err != nil {
			data = []byte(err.Error())
		}
		text += fmt.Sprintf("\n--- %s\n%s", side, data)
	}
	return text
}

// at returns an Application as it was seen last, nil if there is none.
func (h *history) at(side, key string) *unstructured.Unstructured {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.present[place{side, key}]
}

// keys returns all Applications that are on one side or the other, and the bystanders, which should be.
func (h *history) keys() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := []string{"a/" + bystander, "b/" + bystander}
	for p, object := range h.present {
		if object != nil {
			keys = append(keys, p.key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
