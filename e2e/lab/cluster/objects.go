package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

// fieldManager owns what the lab applies.
const fieldManager = "lab"

// Selection names one object, or with an empty Name all of a kind, in a namespace or in all.
type Selection struct {
	Resource  schema.GroupVersionResource
	Namespace string // empty for kinds that have none, and for all namespaces
	Name      string
}

// String is for messages.
func (s Selection) String() string {
	text := s.Resource.Resource
	if s.Namespace != "" {
		text += " " + s.Namespace + "/" + s.Name
	} else if s.Name != "" {
		text += " " + s.Name
	}
	return text
}

// Of is the client for what a selection names.
func (c *Cluster) Of(s Selection) dynamic.ResourceInterface {
	if s.Namespace == "" {
		return c.Dynamic.Resource(s.Resource)
	}
	return c.Dynamic.Resource(s.Resource).Namespace(s.Namespace)
}

// Apply makes objects be as described (server-side, taking over fields of others).
func (c *Cluster) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	for _, object := range objects {
		if err := c.apply(ctx, object); err != nil {
			return fmt.Errorf("apply %s %s/%s on %s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), c.Name, err)
		}
	}
	return nil
}

func (c *Cluster) apply(ctx context.Context, object *unstructured.Unstructured) error {
	s, err := c.SelectionOf(object)
	if err != nil {
		return err
	}
	apply := func() error {
		_, err := c.Of(s).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		return err
	}
	// Of a namespace that was deleted and is there again the API server may know yet only that it is going.
	going := func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }
	return retry.OnError(wait.Backoff{Steps: 10, Duration: 100 * time.Millisecond, Factor: 1.5}, going, apply)
}

// SelectionOf finds the resource that an object is of.
func (c *Cluster) SelectionOf(object *unstructured.Unstructured) (Selection, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) { // its definition may be newer than what is remembered
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return Selection{}, err
	}
	s := Selection{Resource: mapping.Resource, Name: object.GetName()}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		s.Namespace = object.GetNamespace()
	}
	return s, nil
}

// ApplyYAML applies every object of a YAML text; those with no namespace of their own go into the one given.
func (c *Cluster) ApplyYAML(ctx context.Context, text []byte, namespace string) error {
	objects, err := Parse(text)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		if s, err := c.SelectionOf(object); err == nil && s.Namespace == "" {
			object.SetNamespace("")
		}
		if err := c.Apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// Define applies the CustomResourceDefinitions in some files, and returns when the API server serves what they define.
func (c *Cluster) Define(ctx context.Context, files ...string) error {
	var definitions []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("definitions: %w", err)
		}
		parsed, err := Parse(text)
		if err != nil {
			return fmt.Errorf("definitions in %s: %w", file, err)
		}
		definitions = append(definitions, parsed...)
	}
	if err := c.Apply(ctx, definitions...); err != nil {
		return err
	}
	all := Selection{Resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}}
	_, err := c.WaitAll(ctx, all, func(are Objects) bool {
		return !slices.ContainsFunc(definitions, func(definition *unstructured.Unstructured) bool {
			is := are[definition.GetName()]
			return is == nil || Condition(is, "Established") != "True"
		})
	})
	return err
}

// Parse reads the objects of a YAML text.
func Parse(text []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4<<10)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("YAML: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// Get reads an object; nil when it does not exist.
func (c *Cluster) Get(ctx context.Context, s Selection) (*unstructured.Unstructured, error) {
	object, err := c.Of(s).Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s on %s: %w", s, c.Name, err)
	}
	return object, nil
}

// List reads all that a selection names.
func (c *Cluster) List(ctx context.Context, s Selection) ([]unstructured.Unstructured, error) {
	list, err := c.Of(s).List(ctx, s.options())
	if err != nil {
		return nil, fmt.Errorf("list %s on %s: %w", s, c.Name, err)
	}
	return list.Items, nil
}

// Update reads an object, lets change change it, and writes it, as often as somebody else comes in between.
func (c *Cluster) Update(ctx context.Context, s Selection, change func(*unstructured.Unstructured)) error {
	often := retry.DefaultRetry
	often.Steps = 100 // Argo CD writes many times while it syncs
	err := retry.RetryOnConflict(often, func() error {
		object, err := c.Of(s).Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(object)
		_, err = c.Of(s).Update(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return fmt.Errorf("update %s on %s: %w", s, c.Name, err)
	}
	return nil
}

// Delete deletes an object. That there is none is no error.
func (c *Cluster) Delete(ctx context.Context, s Selection) error {
	err := c.Of(s).Delete(ctx, s.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s on %s: %w", s, c.Name, err)
	}
	return nil
}

// Condition is the status of a condition of an object, empty when it has none.
func Condition(object *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			status, _ := c["status"].(string)
			return status
		}
	}
	return ""
}
