package commands

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

func guardCommands(e *endpoints) *cobra.Command {
	return e.alsoNamespace(group(&cobra.Command{
		Use: "guard", Short: "Show the deletions that the deletion guard holds, and release them",
		Long: `Show which deletions on the agents' clusters the deletion guard of the principal holds, and release them. A facet is one kind of what
hub and spoke share, such as application.`,
	}, guardListCommand(e), guardReleaseCommand(e)))
}

func guardListCommand(e *endpoints) *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "list [NAME]", Short: "List the deletions that are held, of all agents or one", Args: atMostOneAgent,
		Example: "  argocd-agentctl guard list\n  argocd-agentctl guard list berlin",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			held, err := agents.Deletions(cmd.Context(), hub, firstOf(args))
			if err != nil {
				return err
			}
			return f.print(cmd, held, func(out io.Writer) { printHeld(out, held, len(args) > 0 || f == asWide) })
		},
	}
	f.declare(cmd)
	return cmd
}

func guardReleaseCommand(e *endpoints) *cobra.Command {
	var facets []string
	cmd := &cobra.Command{
		Use: "release NAME", Short: "Have the deletions that are held of an agent done", Args: oneAgent,
		Long:    "Show the deletions that are held of an agent, and have them done: those that are shown, and no others that are held by then.",
		Example: "  argocd-agentctl guard release berlin\n  argocd-agentctl guard release berlin --facet application",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			held, err := agents.Deletions(cmd.Context(), hub, args[0])
			if err != nil {
				return err
			}
			if len(facets) > 0 {
				held = slices.DeleteFunc(held, func(h guard.Held) bool { return !slices.Contains(facets, string(h.Facet)) })
			}
			if len(held) == 0 {
				return fmt.Errorf("agent %s: no such deletions are held, as far as the principal knows: it finds them when the agent connects", args[0])
			}
			f := asText
			if err := f.print(cmd, held, func(out io.Writer) { printHeld(out, held, true) }); err != nil {
				return err
			}
			if err := agents.ReleaseDeletions(cmd.Context(), hub, held); err != nil {
				return err
			}
			return printLine(cmd, "released: %s", strings.Join(facetsOf(held), ", "))
		},
	}
	cmd.Flags().StringSliceVar(&facets, "facet", nil, "only those of these facets")
	return cmd
}

// printHeld prints a table, with the objects below each line if they are wanted.
func printHeld(out io.Writer, held []guard.Held, objects bool) {
	if len(held) == 0 {
		fmt.Fprintln(out, "no deletions are held, as far as the principal knows: it finds them when an agent connects")
		return
	}
	fmt.Fprintln(out, "AGENT\tFACET\tWHY")
	for _, h := range held {
		fmt.Fprintf(out, "%s\t%s\t%s\n", h.Agent, h.Facet, h.Summary())
		if !objects {
			continue
		}
		for _, object := range h.Objects {
			fmt.Fprintf(out, "  %s\n", object)
		}
		if more := h.Deletions - len(h.Objects); more > 0 {
			fmt.Fprintf(out, "  and %d more\n", more)
		}
	}
}

func facetsOf(held []guard.Held) []string {
	facets := make([]string, 0, len(held))
	for _, h := range held {
		facets = append(facets, string(h.Facet))
	}
	return facets
}
