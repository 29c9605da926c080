package commands

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/localconfig"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
)

// kind is what an entry of the config file is about: a principal, or an agent.
type kind string

const (
	ofPrincipal kind = "principal"
	ofAgent     kind = "agent"
)

// entries returns those of that kind.
func (k kind) entries(f localconfig.File) map[string]localconfig.Endpoint {
	if k == ofPrincipal {
		return f.Contexts.Principals
	}
	return f.Contexts.Agents
}

func configCommands(e *endpoints) *cobra.Command {
	pair := func(use, short string, command func(kind) *cobra.Command) *cobra.Command {
		return group(&cobra.Command{Use: use, Short: short}, command(ofPrincipal), command(ofAgent))
	}
	list := configListCommand(e, "")
	list.AddCommand(configListCommand(e, ofPrincipal), configListCommand(e, ofAgent))
	return group(&cobra.Command{
		Use: "config", Short: "Keep names for principals and agents in a file on this machine",
		Long: `Keep names for principals and agents in a file on this machine, each with its context in the kubeconfig and its namespace. Then
--principal and --agent stand for both. The default principal is the one that is meant if neither --principal nor --principal-context says which.`,
	}, configCreateCommand(e),
		pair("add", "Add a principal or an agent to the file", func(k kind) *cobra.Command { return configChangeCommand(e, k, "add") }),
		pair("edit", "Change a principal or an agent in the file", func(k kind) *cobra.Command { return configChangeCommand(e, k, "edit") }),
		pair("delete", "Remove a principal or an agent from the file", func(k kind) *cobra.Command { return configDeleteCommand(e, k) }),
		list)
}

// change changes the file.
func (e *endpoints) change(cmd *cobra.Command, about string, change func(*localconfig.File) error) error {
	f, err := localconfig.Load(e.config)
	if err != nil {
		return err
	}
	if err := change(&f); err != nil {
		return err
	}
	if err := f.Save(e.config); err != nil {
		return err
	}
	return printLine(cmd, "%s: %s", e.config, about)
}

// entryName declares the flag for the name of an entry, which may as well be the argument.
func entryName(cmd *cobra.Command, name *string, k kind) {
	cmd.Flags().StringVar(name, "name", "", "name of the "+string(k)+"; the argument stands for it too")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 1 && *name == "":
			*name = args[0]
		case len(args) > 0 || *name == "":
			return fmt.Errorf("%s: give one name, as in: %s --name berlin", cmd.CommandPath(), cmd.CommandPath())
		}
		return nil
	}
}

func configChangeCommand(e *endpoints, k kind, verb string) *cobra.Command {
	var name string
	var wanted localconfig.Endpoint
	var setDefault bool
	cmd := &cobra.Command{
		Use: string(k) + " [NAME]", Short: map[string]string{"add": "Add", "edit": "Change"}[verb] + " one",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := kubeContext(e, wanted.Context); err != nil {
				return err
			}
			return e.change(cmd, string(k)+" "+name+map[string]string{"add": " added", "edit": " changed"}[verb], func(f *localconfig.File) error {
				all := k.entries(*f)
				known, there := all[name]
				switch {
				case verb == "add" && there:
					return fmt.Errorf("%s: %s %s is there already: change it by argocd-agentctl config edit %s", e.config, k, name, k)
				case verb == "edit" && !there:
					return fmt.Errorf("%s: there is no %s %s: add it by argocd-agentctl config add %s", e.config, k, name, k)
				}
				if wanted.Context != "" {
					known.Context = wanted.Context
				}
				if wanted.Namespace != "" {
					known.Namespace = wanted.Namespace
				}
				if all[name] = known; setDefault {
					f.DefaultPrincipal = name
				}
				return nil
			})
		},
	}
	entryName(cmd, &name, k)
	cmd.Flags().StringVar(&wanted.Context, "context", "", "its context in the kubeconfig")
	cmd.Flags().StringVar(&wanted.Namespace, "namespace", map[string]string{"add": "argocd"}[verb], "its namespace")
	if k == ofPrincipal {
		cmd.Flags().BoolVar(&setDefault, "set-default", false, "make it the default principal")
	}
	return cmd
}

// kubeContext checks that the kubeconfig has a context, unless it is empty, and returns all contexts.
func kubeContext(e *endpoints, name string) ([]string, error) {
	all, _, err := kube.Contexts(e.kubeconfig)
	if err == nil && name != "" && !slices.Contains(all, name) {
		err = fmt.Errorf("--context: there is no context %q: use one of %s", name, strings.Join(all, ", "))
	}
	return all, err
}

func configDeleteCommand(e *endpoints, k kind) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: string(k) + " [NAME]", Short: "Remove one",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.change(cmd, string(k)+" "+name+" deleted", func(f *localconfig.File) error {
				all := k.entries(*f)
				if _, there := all[name]; !there {
					return fmt.Errorf("%s: there is no %s %s: argocd-agentctl config list shows all", e.config, k, name)
				}
				if k == ofPrincipal && f.DefaultPrincipal == name {
					return fmt.Errorf("%s: %s is the default principal: make another one that first, by argocd-agentctl config edit principal --set-default", e.config, name)
				}
				delete(all, name)
				return nil
			})
		},
	}
	entryName(cmd, &name, k)
	return cmd
}

// endpointRow is an entry of the file, for a table.
type endpointRow struct {
	Component kind   `json:"component"`
	Name      string `json:"name"`
	Context   string `json:"context"`
	Namespace string `json:"namespace"`
	Default   bool   `json:"default,omitempty"`
}

// configListCommand lists those of a kind, or all.
func configListCommand(e *endpoints, only kind) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "list", Short: "List what is in the file", Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := localconfig.Load(e.config)
			if err != nil {
				return err
			}
			all := []endpointRow{}
			for _, k := range []kind{ofPrincipal, ofAgent} {
				entries := k.entries(file)
				for _, name := range slices.Sorted(maps.Keys(entries)) {
					if only == "" || only == k {
						all = append(all, endpointRow{k, name, entries[name].Context, entries[name].Namespace, k == ofPrincipal && name == file.DefaultPrincipal})
					}
				}
			}
			return f.print(cmd, all, func(out io.Writer) { printEndpoints(out, all) })
		},
	}
	if only != "" {
		cmd.Use, cmd.Short = string(only), "List those only"
	}
	f.declare(cmd)
	return cmd
}

func printEndpoints(out io.Writer, all []endpointRow) {
	fmt.Fprintln(out, "COMPONENT\tNAME\tCONTEXT\tNAMESPACE\tDEFAULT")
	for _, row := range all {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", row.Component, row.Name, row.Context, row.Namespace, map[bool]string{true: "yes", false: "-"}[row.Default])
	}
}

func configCreateCommand(e *endpoints) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use: "create", Short: "Write the file, asking about each context of the kubeconfig", Args: program.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from != "" {
				e.kubeconfig = from
			}
			if to != "" {
				e.config = to
			}
			contexts, err := kubeContext(e, "")
			if err != nil {
				return err
			}
			a := asking{bufio.NewScanner(cmd.InOrStdin()), cmd.ErrOrStderr()}
			return e.change(cmd, "written", func(f *localconfig.File) error { return a.fill(f, contexts) })
		},
	}
	cmd.Flags().StringVar(&from, "kubeconfig-path", "", "the same as --kubeconfig")
	cmd.Flags().StringVar(&to, "output-path", "", "the same as --config")
	return cmd
}

// asking asks a person.
type asking struct {
	in  *bufio.Scanner
	out io.Writer
}

// ask asks until the answer is right.
func (a asking) ask(question string, right func(string) bool) (string, error) {
	for {
		fmt.Fprint(a.out, question+" ")
		if !a.in.Scan() {
			return "", errors.Join(errors.New("no answer: nothing is written"), a.in.Err())
		}
		if answer := strings.TrimSpace(a.in.Text()); right(answer) {
			return answer, nil
		}
	}
}

// fill asks what each context is, and which principal is the default one.
func (a asking) fill(f *localconfig.File, contexts []string) error {
	for _, context := range contexts {
		what, err := a.ask("Context "+context+": principal, agent, or nothing to leave it out?", func(s string) bool {
			return s == "" || s == string(ofPrincipal) || s == string(ofAgent)
		})
		if err != nil || what == "" {
			if err != nil {
				return err
			}
			continue
		}
		word := func(s string) bool { return s != "" && !strings.Contains(s, " ") }
		namespace, err := a.ask("Namespace of that "+what+"?", word)
		if err != nil {
			return err
		}
		name, err := a.ask("Name for that "+what+"?", word)
		if err != nil {
			return err
		}
		kind(what).entries(*f)[name] = localconfig.Endpoint{Context: context, Namespace: namespace}
	}
	principals := slices.Sorted(maps.Keys(f.Contexts.Principals))
	if len(principals) == 0 {
		return nil
	}
	var err error
	f.DefaultPrincipal, err = a.ask("Default principal, of "+strings.Join(principals, ", ")+"?", func(s string) bool { return slices.Contains(principals, s) })
	return err
}
