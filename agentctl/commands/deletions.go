package commands

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

func deletionsCommand(e *endpoints) *cobra.Command {
	var f format
	var release bool
	cmd := &cobra.Command{
		Use: "deletions NAME", Short: "Show the deletions that the deletion guard holds, or release them", Args: oneAgent,
		Long: `Show which deletions on an agent's cluster the deletion guard of the principal holds. With --release those that are shown are done, and
no others that it may hold by then.`,
		Example: "  argocd-agentctl agent deletions berlin\n  argocd-agentctl agent deletions berlin --release",
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := e.hub()
			if err != nil {
				return err
			}
			held, err := agents.Deletions(cmd.Context(), hub, args[0])
			if err != nil {
				return err
			}
			if held == nil {
				held = []guard.Held{}
			}
			if err := f.print(cmd, held, func(out io.Writer) { printHeld(out, args[0], held, release) }); err != nil || !release {
				return err
			}
			if err := agents.ReleaseDeletions(cmd.Context(), hub, held); err != nil || f != asText || len(held) == 0 {
				return err
			}
			return printLine(cmd, "released: %s", strings.Join(facetsOf(held), ", "))
		},
	}
	cmd.Flags().BoolVar(&release, "release", false, "have the principal do what is shown")
	f.declare(cmd)
	return cmd
}

func printHeld(out io.Writer, agent string, held []guard.Held, release bool) {
	if len(held) == 0 {
		fmt.Fprintf(out, "no deletions of agent %s are held, as far as the principal knows: it finds them when the agent connects\n", agent)
		return
	}
	for _, h := range held {
		fmt.Fprintf(out, "%s: %s\n", h.Facet, h.Summary())
		for _, object := range h.Objects {
			fmt.Fprintf(out, "  %s\n", object)
		}
		if more := h.Deletions - len(h.Objects); more > 0 {
			fmt.Fprintf(out, "  and %d more\n", more)
		}
	}
	if !release {
		fmt.Fprintf(out, "release them with: argocd-agentctl agent deletions %s --release\n", agent)
	}
}

func facetsOf(held []guard.Held) []string {
	facets := make([]string, 0, len(held))
	for _, h := range held {
		facets = append(facets, string(h.Facet))
	}
	return facets
}
