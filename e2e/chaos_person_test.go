package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// cascade makes the application controller delete what an Application deployed, in a way that needs no garbage collector.
const cascade = "resources-finalizer.argocd.argoproj.io/background"

// bystander is an Application that is a spoke's own: nobody else has anything to do with it.
const bystander = "bystander"

// person works on one Application, on the hub and sometimes, without having the right to, on the spoke.
type person struct {
	chaos     *chaos
	agent     string
	key       string // agent/name
	hub       cluster.Selection
	spoke     cluster.Selection
	dice      *rand.Rand
	server    string // URL of argocd-server's view of the Application
	undecided bool   // whether want may be wrong, since nobody answered
	serial    int
	done      map[string]int

	// want is the Application on the hub as the person last left it, nil if it is not to be.
	want  *unstructured.Unstructured
	syncs []order
}

// order is a sync that the hub has accepted.
type order struct {
	id  string
	uid types.UID // of the Application on the hub
	at  time.Time
}

func newPerson(c *chaos, agent, name string) *person {
	return &person{
		chaos: c, agent: agent, key: agent + "/" + name,
		hub: argocd.Named(agent, name), spoke: argocd.Named(lab.Namespace, name),
		dice: c.dice(agent + "/" + name), done: make(map[string]int),
		server: c.lab.Hub.ArgoCD.URL + "/api/v1/applications/" + name,
	}
}

func (c *chaos) createBystander(t *testing.T, agent string) {
	t.Helper()
	require.NoError(t, c.lab.Spoke(agent).Apply(t.Context(), argocd.New(argocd.Application{
		Namespace: lab.Namespace, Name: bystander, RepoURL: c.lab.Git.URL, Path: lab.ConfigPath, Into: bystander,
	})))
}

// deed is something that a person does.
type deed struct {
	name   string
	weight int
	do     func(*person, context.Context) error
}

// deeds are all that people do with an Application that is there. They are undisturbed by what becomes of it.
func deeds() []deed {
	return []deed{
		{"edit spec", 10, func(p *person, ctx context.Context) error { return p.edit(ctx, p.editSpec) }},
		{"edit labels", 5, func(p *person, ctx context.Context) error { return p.edit(ctx, p.editLabels) }},
		{"edit annotations", 5, func(p *person, ctx context.Context) error { return p.edit(ctx, p.editAnnotations) }},
		{"edit finalizers", 4, func(p *person, ctx context.Context) error { return p.edit(ctx, p.editFinalizers) }},
		{"sync", 14, (*person).sync},
		{"sync by argocd-server", 6, (*person).syncByServer},
		{"terminate by argocd-server", 3, (*person).terminateByServer},
		{"refresh", 5, (*person).refresh},
		{"refresh by argocd-server", 3, (*person).refreshByServer},
		{"edit status", 3, (*person).editStatus},
		{"delete", 5, (*person).delete},
		{"delete by argocd-server", 4, (*person).deleteByServer},
		{"delete and create", 4, (*person).replace},
		{"spoke: edit spec", 5, func(p *person, ctx context.Context) error { return p.meddle(ctx, p.editSpec) }},
		{"spoke: edit labels", 3, func(p *person, ctx context.Context) error { return p.meddle(ctx, p.editLabels) }},
		{"spoke: edit annotations", 3, func(p *person, ctx context.Context) error { return p.meddle(ctx, p.editAnnotations) }},
		{"spoke: wipe annotations", 2, func(p *person, ctx context.Context) error { return p.meddle(ctx, wipeAnnotations) }},
		{"spoke: edit finalizers", 3, func(p *person, ctx context.Context) error { return p.meddle(ctx, p.editFinalizers) }},
		{"spoke: sync", 3, (*person).syncOnSpoke},
		{"spoke: delete", 4, (*person).deleteOnSpoke},
	}
}

// live works until the context ends.
func (p *person) live(ctx context.Context) {
	for wait(ctx, time.Duration(p.dice.Int64N(int64(3*time.Second)))) {
		if p.want == nil {
			p.attempt(ctx, deed{"create", 0, (*person).create})
			continue
		}
		p.attempt(ctx, p.choose(deeds()))
	}
}

// choose throws the dice, in which each deed has its weight.
func (p *person) choose(all []deed) deed {
	sum := 0
	for _, d := range all {
		sum += d.weight
	}
	n := p.dice.IntN(sum)
	for _, d := range all {
		if n -= d.weight; n < 0 {
			return d
		}
	}
	return all[0]
}

// attempt does something to the end, and notes how it went.
func (p *person) attempt(ctx context.Context, d deed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	err := d.do(p, ctx)
	var answer apierrors.APIStatus
	if err != nil && !errors.As(err, &answer) && !errors.Is(err, errAnswered) {
		p.look(ctx)
	}
	if err != nil {
		p.chaos.history.do(p.key, d.name+" did not work: "+err.Error())
		return
	}
	p.done[d.name]++
	p.chaos.history.do(p.key, d.name)
}

// look finds out what became of something that nobody answered.
func (p *person) look(ctx context.Context) {
	object, err := p.chaos.lab.Hub.Wait(ctx, p.hub, func(*unstructured.Unstructured) bool { return true })
	if err != nil {
		p.undecided = true
		return
	}
	p.wants(object)
}

// wants notes what is on the hub now.
func (p *person) wants(object *unstructured.Unstructured) {
	if object != nil && object.GetDeletionTimestamp() != nil {
		object = nil
	}
	p.want = object
}

func (p *person) create(ctx context.Context) error {
	app := argocd.New(argocd.Application{
		Namespace: p.hub.Namespace, Name: p.hub.Name, RepoURL: p.chaos.lab.Git.URL, Path: lab.ConfigPath,
		Destination: p.agent, Into: p.agent + "-" + p.hub.Name, Manual: p.dice.IntN(3) > 0,
	})
	if p.dice.IntN(2) == 0 {
		app.SetFinalizers([]string{cascade})
	}
	p.editLabels(app)
	object, err := p.chaos.lab.Hub.Of(p.hub).Create(ctx, app, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	p.wants(object)
	return nil
}

// edit changes the Application on the hub.
func (p *person) edit(ctx context.Context, change func(*unstructured.Unstructured)) error {
	object, err := rewrite(ctx, p.chaos.lab.Hub, p.hub, change)
	if err != nil {
		return err
	}
	p.wants(object)
	return nil
}

// meddle changes the Application on the spoke.
func (p *person) meddle(ctx context.Context, change func(*unstructured.Unstructured)) error {
	_, err := rewrite(ctx, p.chaos.lab.Spoke(p.agent), p.spoke, change)
	return err
}

// rewrite reads, changes and writes an object, once.
func rewrite(
	ctx context.Context, c *lab.Cluster, s cluster.Selection, change func(*unstructured.Unstructured),
) (*unstructured.Unstructured, error) {
	object, err := c.Of(s).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	change(object)
	return c.Of(s).Update(ctx, object, metav1.UpdateOptions{})
}

func (p *person) editSpec(object *unstructured.Unstructured) {
	p.serial++
	switch p.dice.IntN(3) {
	case 0:
		set(object, int64(1+p.dice.IntN(20)), "spec", "revisionHistoryLimit")
	case 1:
		set(object, []any{map[string]any{"name": "note", "value": fmt.Sprint("number ", p.serial)}}, "spec", "info")
	default:
		if _, automated, _ := unstructured.NestedMap(object.Object, "spec", "syncPolicy", "automated"); automated {
			unstructured.RemoveNestedField(object.Object, "spec", "syncPolicy", "automated")
		} else {
			set(object, map[string]any{"prune": true, "selfHeal": true}, "spec", "syncPolicy", "automated")
		}
	}
}

func (p *person) editLabels(object *unstructured.Unstructured) {
	p.serial++
	labels := map[string]string{"number": fmt.Sprint(p.serial)}
	if p.dice.IntN(2) == 0 {
		labels["team"] = "blue"
	}
	object.SetLabels(labels)
}

func (p *person) editAnnotations(object *unstructured.Unstructured) {
	p.serial++
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = make(map[string]string)
	}
	delete(annotations, "example.com/now-and-then")
	if p.dice.IntN(2) == 0 {
		annotations["example.com/now-and-then"] = "yes"
	}
	annotations["example.com/number"] = fmt.Sprint(p.serial)
	object.SetAnnotations(annotations)
}

func wipeAnnotations(object *unstructured.Unstructured) { object.SetAnnotations(nil) }

func (p *person) editFinalizers(object *unstructured.Unstructured) {
	finalizers := object.GetFinalizers()
	if i := slices.Index(finalizers, cascade); i >= 0 {
		object.SetFinalizers(slices.Delete(finalizers, i, i+1))
		return
	}
	object.SetFinalizers(append(finalizers, cascade))
}

// editStatus writes what only the spoke may say.
func (p *person) editStatus(ctx context.Context) error {
	return p.edit(ctx, func(object *unstructured.Unstructured) { set(object, "Unknown", "status", "health", "status") })
}

// operation is what argocd-server would write to sync.
func operation(id string) map[string]any {
	return map[string]any{
		"initiatedBy": map[string]any{"username": "chaos"},
		"info":        []any{map[string]any{"name": infoSync, "value": id}},
		"sync":        map[string]any{"prune": true, "syncOptions": []any{"CreateNamespace=true"}},
	}
}

func (p *person) sync(ctx context.Context) error {
	p.serial++
	id := fmt.Sprintf("%s/%d", p.key, p.serial)
	object, err := p.chaos.lab.Hub.Of(p.hub).Get(ctx, p.hub.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if object.Object["operation"] != nil {
		return errAnsweredf("another operation is in progress")
	}
	object.Object["operation"] = operation(id)
	object, err = p.chaos.lab.Hub.Of(p.hub).Update(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	p.wants(object)
	p.ordered(id)
	return nil
}

func (p *person) ordered(id string) {
	p.chaos.history.do(p.key, "ordered "+id)
	p.syncs = append(p.syncs, order{id, p.want.GetUID(), time.Now()})
}

func (p *person) syncOnSpoke(ctx context.Context) error {
	p.serial++
	return p.meddle(ctx, func(object *unstructured.Unstructured) {
		if object.Object["operation"] == nil {
			object.Object["operation"] = operation(fmt.Sprintf("%s/%d-local", p.key, p.serial))
		}
	})
}

func (p *person) refresh(ctx context.Context) error {
	kind := []string{"normal", "hard"}[p.dice.IntN(2)]
	return p.edit(ctx, func(object *unstructured.Unstructured) {
		set(object, kind, "metadata", "annotations", "argocd.argoproj.io/refresh")
	})
}

func (p *person) delete(ctx context.Context) error {
	if err := p.marked(ctx); err != nil {
		return err
	}
	uid := p.want.GetUID()
	err := p.chaos.lab.Hub.Of(p.hub).Delete(ctx, p.hub.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if err == nil {
		p.wants(nil)
	}
	return err
}

// marked returns an error if the copy does not say that it is one. Its agent may leave it alone then, so nobody deletes the original.
func (p *person) marked(ctx context.Context) error {
	wiped, err := isWiped(ctx, p.chaos.lab.Spoke(p.agent), p.spoke)
	switch {
	case err != nil:
		return errAnsweredf(err.Error())
	case wiped:
		return errAnsweredf("somebody wiped the copy")
	}
	return nil
}

// replace deletes the Application and creates another one of its name, if nothing holds the old one.
func (p *person) replace(ctx context.Context) error {
	if err := p.delete(ctx); err != nil {
		return err
	}
	return p.create(ctx)
}

func (p *person) deleteOnSpoke(ctx context.Context) error {
	spoke := p.chaos.lab.Spoke(p.agent)
	return spoke.Of(p.spoke).Delete(ctx, p.spoke.Name, metav1.DeleteOptions{})
}

func (p *person) syncByServer(ctx context.Context) error {
	p.serial++
	id := fmt.Sprintf("%s/%d", p.key, p.serial)
	err := p.ask(ctx, http.MethodPost, "/sync", map[string]any{
		"appNamespace": p.agent, "prune": true, "infos": []any{map[string]any{"name": infoSync, "value": id}},
	})
	if err != nil {
		return err
	}
	p.ordered(id)
	return nil
}

func (p *person) terminateByServer(ctx context.Context) error {
	return p.ask(ctx, http.MethodDelete, "/operation?appNamespace="+p.agent, nil)
}

// refreshByServer asks as the UI does; that the answer takes longer than a person waits is no matter.
func (p *person) refreshByServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err := p.ask(ctx, http.MethodGet, "?refresh=normal&appNamespace="+p.agent, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (p *person) deleteByServer(ctx context.Context) error {
	if err := p.marked(ctx); err != nil {
		return err
	}
	query := []string{"&cascade=true&propagationPolicy=background", "&cascade=false"}[p.dice.IntN(2)]
	err := p.ask(ctx, http.MethodDelete, "?appNamespace="+p.agent+query, nil)
	if err == nil {
		p.wants(nil)
	}
	return err
}

// errAnswered means that what was asked for did not happen.
var errAnswered = errors.New("refused")

func errAnsweredf(text string) error { return fmt.Errorf("%w: %s", errAnswered, text) }

// ask asks argocd-server.
func (p *person) ask(ctx context.Context, method, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, p.server+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode >= 400 && response.StatusCode < 500:
		return errAnsweredf(string(text))
	case response.StatusCode >= 500:
		return fmt.Errorf("argocd-server: %s", text)
	}
	return nil
}

func set(object *unstructured.Unstructured, value any, path ...string) {
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		panic(err)
	}
}
