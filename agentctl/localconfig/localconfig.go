// Package localconfig reads and writes argocd-agentctl's own file on an operator's machine: names for principals and agents, each
// with its context in the kubeconfig and its namespace. Name and form of the file are argocd-agent's.
package localconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// File is what is in the file.
type File struct {
	Contexts Contexts `json:"contexts"`
	// DefaultPrincipal is the one that is meant if nothing says which; empty for none.
	DefaultPrincipal string `json:"default-principal,omitempty"`
}

// Contexts are the endpoints by their names.
type Contexts struct {
	Principals map[string]Endpoint `json:"principals"`
	Agents     map[string]Endpoint `json:"agents"`
}

// Endpoint is where a principal, or an agent, runs.
type Endpoint struct {
	Context   string `json:"kube-context"`
	Namespace string `json:"namespace"`
}

// DefaultPath returns where the file is in a home directory; empty if that is.
func DefaultPath(home string) string {
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".config", "argocd-agent", "ctl.conf")
}

// Load reads the file. One that is not there has nothing in it.
func Load(path string) (File, error) {
	f := File{Contexts: Contexts{Principals: map[string]Endpoint{}, Agents: map[string]Endpoint{}}}
	if path == "" {
		return f, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		err = yaml.UnmarshalStrict(text, &f)
	}
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	if f.Contexts.Principals == nil {
		f.Contexts.Principals = map[string]Endpoint{}
	}
	if f.Contexts.Agents == nil {
		f.Contexts.Agents = map[string]Endpoint{}
	}
	return f, nil
}

// Save writes the file, all of it or nothing.
func (f File) Save(path string) error {
	if path == "" {
		return errors.New("there is no home directory for the file: give its path with --config")
	}
	if err := f.check(); err != nil {
		return err
	}
	text, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name()) // what is wrong is said already
	}
	return err
}

// check says what is wrong with the names and endpoints.
func (f File) check() error {
	var problems []error
	for _, of := range []struct {
		kind string
		all  map[string]Endpoint
	}{{"principal", f.Contexts.Principals}, {"agent", f.Contexts.Agents}} {
		for _, name := range slices.Sorted(maps.Keys(of.all)) {
			if err := of.all[name].check(); err != nil {
				problems = append(problems, fmt.Errorf("%s %q: %w", of.kind, name, err))
			}
			if name == "" || strings.ContainsAny(name, " \t\n") {
				problems = append(problems, fmt.Errorf("%s %q: want a name without spaces", of.kind, name))
			}
		}
	}
	if _, ok := f.Contexts.Principals[f.DefaultPrincipal]; !ok && f.DefaultPrincipal != "" {
		problems = append(problems, fmt.Errorf("default-principal: there is no principal %q: %s", f.DefaultPrincipal, known(f.Contexts.Principals)))
	}
	return errors.Join(problems...)
}

func (e Endpoint) check() error {
	if e.Context == "" {
		return errors.New("kube-context: want the name of a context in the kubeconfig")
	}
	if err := errors.Join(settings.NonEmpty(e.Namespace), settings.DNSLabel(e.Namespace)); err != nil {
		return fmt.Errorf("namespace %q: %w", e.Namespace, err)
	}
	return nil
}

// Principal returns the endpoint of a principal.
func (f File) Principal(name string) (Endpoint, error) {
	return find("principal", f.Contexts.Principals, name)
}

// Agent returns the endpoint of an agent.
func (f File) Agent(name string) (Endpoint, error) { return find("agent", f.Contexts.Agents, name) }

func find(kind string, all map[string]Endpoint, name string) (Endpoint, error) {
	found, ok := all[name]
	if !ok {
		return found, fmt.Errorf("there is no %s %q in the config file: %s", kind, name, known(all))
	}
	return found, nil
}

// known says which names there are.
func known(all map[string]Endpoint) string {
	if len(all) == 0 {
		return "it has none: add one by argocd-agentctl config add"
	}
	return "use one of " + strings.Join(slices.Sorted(maps.Keys(all)), ", ")
}
