package contract_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// object is a decoded JSON object.
type object = map[string]any

// field is one of an object's, as Argo CD's types have it.
type field struct {
	name     string
	of       reflect.Type
	optional bool // it may be left out
}

// fieldsOf are the fields of a struct, with those of structs that are part of it in JSON.
func fieldsOf(of reflect.Type) []field {
	var out []field
	for f := range of.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case name != "":
			out = append(out, field{name, f.Type, strings.Contains(options, "omitempty")})
		case f.Anonymous:
			for _, part := range fieldsOf(inner) {
				out = append(out, field{part.name, part.of, part.optional || f.Type.Kind() == reflect.Pointer})
			}
		}
	}
	return out
}

// leaf are the values of a type that is no object and no list: zero ones first.
func leaf(of reflect.Type) []any {
	switch of {
	case reflect.TypeFor[runtime.RawExtension]():
		return []any{object{}, object{"replicas": 0, "on": false, "empty": nil, "list": []any{}}}
	case reflect.TypeFor[intstr.IntOrString]():
		return []any{0, "", 3, "3"}
	}
	switch of.Kind() {
	case reflect.Bool:
		return []any{false, true}
	case reflect.Int64:
		return []any{0, 7}
	case reflect.String:
		return []any{"", "text"}
	case reflect.Map:
		return []any{object{}, object{"key": reflect.Zero(of.Elem()).Interface()}}
	}
	return nil
}

// base is an object with the fields that have to be there.
func base(of reflect.Type) object {
	out := make(object)
	for _, f := range fieldsOf(of) {
		if f.optional {
			continue
		}
		if values := leaf(f.of); values != nil {
			out[f.name] = values[len(values)-1]
		} else {
			out[f.name] = base(f.of)
		}
	}
	return out
}

// variants are the values of a type of which each has one field that matters: for each field of each object in it, all that the
// field may be.
func variants(of reflect.Type) []any {
	if values := leaf(of); values != nil {
		return values
	}
	switch of.Kind() {
	case reflect.Pointer:
		return append(variants(of.Elem()), nil)
	case reflect.Slice:
		out := []any{[]any{}}
		for _, item := range variants(of.Elem()) {
			if item != nil {
				out = append(out, []any{item})
			}
		}
		return out
	}
	out := []any{base(of)}
	for _, f := range fieldsOf(of) {
		for _, v := range variants(f.of) {
			if v == nil && !f.optional {
				continue
			}
			one := base(of)
			one[f.name] = v
			out = append(out, one, withAnother(of, f.name, one))
		}
	}
	return out
}

// withAnother returns an object in which another optional field has a value, so that one alone does not decide about the object.
func withAnother(of reflect.Type, name string, one object) object {
	both := maps.Clone(one)
	for _, f := range fieldsOf(of) {
		if values := leaf(f.of); values != nil && f.optional && f.name != name {
			both[f.name] = values[len(values)-1]
			break
		}
	}
	return both
}

// anObject generates values of a type.
func anObject(of reflect.Type) *rapid.Generator[any] {
	if values := leaf(of); values != nil {
		return rapid.SampledFrom(values)
	}
	switch of.Kind() {
	case reflect.Pointer:
		return anObject(of.Elem())
	case reflect.Slice:
		return rapid.Map(rapid.SliceOfN(anObject(of.Elem()), 0, 2), func(items []any) any { return items })
	}
	return rapid.Custom(func(t *rapid.T) any {
		out := base(of)
		for _, f := range fieldsOf(of) {
			if !f.optional || rapid.Bool().Draw(t, f.name) {
				out[f.name] = anObject(f.of).Draw(t, f.name)
			}
		}
		return out
	})
}

// stored is a spec as Argo CD's application controller stores it.
func stored(t require.TestingT, spec json.RawMessage) json.RawMessage {
	typed := decoded[v1alpha1.ApplicationSpec](t, spec)
	return encoded(t, argo.NormalizeApplicationSpec(&typed))
}

// versions are those of an application with a spec: as it is offered to the other side, and as it is here.
func versions(t require.TestingT, spec json.RawMessage) (offered, own converge.Version) {
	app := argocd.Reduce(false)(&argocd.Application{Spec: spec}, nil)
	_, offered, err := app.Define()
	require.NoError(t, err)
	definition, err := app.Own()
	require.NoError(t, err)
	_, own, err = definition.Encode()
	require.NoError(t, err)
	return offered, own
}

// noDrift requires that a spec is the same to ours before and after Argo CD has stored it.
func noDrift(t require.TestingT, v any) {
	spec := encoded(t, v)
	after := stored(t, spec)
	offered, own := versions(t, spec)
	offeredAfter, ownAfter := versions(t, after)
	require.Equal(t, offered, offeredAfter, "%s becomes %s", spec, after)
	require.Equal(t, own, ownAfter, "%s becomes %s", spec, after)
}

// An automated sync of the application controller stores the spec: whatever its types leave out is no drift. This goes through every
// field of every type that a spec is made of.
func TestSpecDoesNotDriftByAnyZeroField(t *testing.T) {
	all := variants(reflect.TypeFor[v1alpha1.ApplicationSpec]())
	require.Greater(t, len(all), 1000)
	for _, spec := range all {
		noDrift(t, spec)
	}
}

func TestSpecDoesNotDrift(t *testing.T) {
	generator := anObject(reflect.TypeFor[v1alpha1.ApplicationSpec]())
	rapid.Check(t, func(t *rapid.T) { noDrift(t, generator.Draw(t, "spec")) })
}

// What is applied on the spoke says the same as what is on the hub, except where it is deployed.
func TestSpecOnTheSpokeIsTheSameToArgoCD(t *testing.T) {
	generator := anObject(reflect.TypeFor[v1alpha1.ApplicationSpec]())
	rapid.Check(t, func(t *rapid.T) {
		spec := encoded(t, generator.Draw(t, "spec"))
		payload, _, err := argocd.Reduce(false)(&argocd.Application{Spec: spec}, nil).Define()
		require.NoError(t, err)
		onHub := decoded[v1alpha1.ApplicationSpec](t, stored(t, spec))
		onSpoke := decoded[v1alpha1.ApplicationSpec](t, stored(t, decoded[argocd.Definition](t, payload).Spec))
		onHub.Destination = v1alpha1.ApplicationDestination{Name: inCluster, Namespace: onHub.Destination.Namespace}
		require.JSONEq(t, string(encoded(t, &onHub)), string(encoded(t, &onSpoke)))
	})
}
