package commands

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// What a terminal is told (ECMA-48, 8.3.57, 8.3.39 and 8.3.41): to go on at its top, and to forget what is below, or to the right. The screen is not
// cleared first, so it does not flicker.
const (
	toTop       = "\x1b[H"
	forgetBelow = "\x1b[J"
	forgetRight = "\x1b[K"
)

// statusFlags are those of status.
type statusFlags struct {
	format   format
	selector string
	watch    bool
	interval time.Duration
}

func statusCommand(e *endpoints) *cobra.Command {
	var s statusFlags
	cmd := &cobra.Command{
		Use: "status", Short: "Show how all agents are, in one table", Args: program.NoArguments,
		Long: `Show how all agents are, in one table: whether they are connected, by how much they lag behind the hub, how many objects are still to be
synchronised, deletions that are held, and problems. With any problem the exit code is 1, and also while it is not known of an agent whether it
is connected. With --watch the table is shown again whenever something has changed.`,
		Example: "  argocd-agentctl status\n  argocd-agentctl status -w --selector region=eu",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := labels.Parse(s.selector); err != nil {
				return fmt.Errorf("--selector: %w", err)
			}
			if err := settings.AtLeast(time.Second)(s.interval); err != nil {
				return fmt.Errorf("--interval: %w", err)
			}
			hub, err := e.hub()
			if err != nil {
				return err
			}
			if s.watch {
				return s.follow(cmd, e, hub)
			}
			all, err := agents.List(cmd.Context(), hub, s.selector, e.presence(cmd, hub))
			if err != nil {
				return err
			}
			warnOfNone(cmd.ErrOrStderr(), hub, s.selector, all)
			err = s.format.print(cmd, all, func(out io.Writer) { printStatus(out, all, s.format == asWide, time.Now()) })
			return errors.Join(foundProblems(err, "agents", problems(all)), foundUnknown(all))
		},
	}
	e.alsoNamespace(cmd)
	cmd.Flags().StringVarP(&s.selector, "selector", "l", "", "only agents whose cluster Secrets have these labels, as kubectl takes them")
	cmd.Flags().BoolVarP(&s.watch, "watch", "w", false, "show it again whenever something has changed, until interrupted")
	cmd.Flags().DurationVar(&s.interval, "interval", 2*time.Second, "how often the hub is asked with --watch")
	s.format.declare(cmd)
	return cmd
}

// problems counts those of all agents.
func problems(all []agents.Agent) int {
	n := 0
	for i := range all {
		n += len(all[i].Problems)
	}
	return n
}

// foundUnknown is the error of agents that may be away: whoever asks for the exit code only would take them for connected.
func foundUnknown(all []agents.Agent) error {
	n := 0
	for i := range all {
		if all[i].Connection.State == principals.Unknown {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("agents: not known whether they are connected: %d: the warning says why", n)
}

// follow shows the table again whenever it has changed, until the context ends. What cannot be read is said, and tried again.
func (s *statusFlags) follow(cmd *cobra.Command, e *endpoints, hub *cluster.Client) error {
	out := cmd.OutOrStdout()
	asked := time.NewTicker(s.interval)
	defer asked.Stop()
	inPlace := isTerminal(out) && s.format != asJSON && s.format != asYAML
	var shown []agents.Agent
	said := ""
	for first := true; ; first = false {
		all, warnings, err := s.ask(cmd.Context(), e, hub)
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			warnings = fmt.Sprintf("warning: %v\n", err)
		case inPlace: // for how long an agent has been away changes even if nothing else does
			if err := s.redraw(out, all); err != nil {
				return err
			}
			said = "" // what was below the table is gone
		case first || !reflect.DeepEqual(settled(all), settled(shown)):
			shown = all
			if err := s.format.print(cmd, all, func(out io.Writer) { printStatus(out, all, s.format == asWide, time.Now()) }); err != nil {
				return err
			}
		}
		if warnings != said {
			fmt.Fprint(cmd.ErrOrStderr(), warnings)
			said = warnings
		}
		select {
		case <-asked.C:
		case <-cmd.Context().Done():
			return nil
		}
	}
}

// redraw puts the table over what is on the terminal.
func (s *statusFlags) redraw(out io.Writer, all []agents.Agent) error {
	table, err := aligned(func(out io.Writer) { printStatus(out, all, s.format == asWide, time.Now()) })
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, toTop+strings.ReplaceAll(table, "\n", forgetRight+"\n")+forgetBelow)
	return err
}

// ask asks once, and returns the warnings that came with it.
func (s *statusFlags) ask(ctx context.Context, e *endpoints, hub *cluster.Client) (all []agents.Agent, warnings string, err error) {
	var text bytes.Buffer
	all, err = agents.List(ctx, hub, s.selector, func() principals.Presence { return warned(&text, principals.Ask(ctx, hub, e.metrics)) })
	return all, text.String(), err
}

// settled is what of the table is worth to be shown again: lag grows by itself, and is not without a backlog.
func settled(all []agents.Agent) []agents.Agent {
	same := make([]agents.Agent, len(all))
	for i := range all {
		same[i] = all[i]
		if session := all[i].Connection.Session; session != nil {
			without := *session
			without.LagSeconds = float64(int(without.LagSeconds))
			same[i].Connection.Session = &without
		}
	}
	return same
}

func printStatus(out io.Writer, all []agents.Agent, wide bool, now time.Time) {
	more := ""
	if wide {
		more = "\tADDRESS\tLABELS\tSECRET"
	}
	fmt.Fprintln(out, "AGENT\tMODE\tCONNECTION\tLAG\tBACKLOG\tHELD\tCERTIFICATE UNTIL\tBUILD\tARGO CD\tKUBERNETES\tREPLICA\tPROBLEMS"+more)
	for i := range all {
		a := &all[i]
		mode, lag, backlog, until, address, argoCD, kubernetes := a.Mode, "-", "-", "-", "-", "-", "-"
		if session := a.Connection.Session; session != nil {
			mode, address = cmp.Or(session.Mode, mode), orDash(session.Address)
			argoCD, kubernetes = orDash(session.ArgoCD), orDash(session.Kubernetes)
			lag = time.Duration(session.LagSeconds * float64(time.Second)).Round(100 * time.Millisecond).String()
			backlog = strconv.Itoa(session.Backlog)
			if session.CertificateEnd != nil {
				until = certificate.Stamp(*session.CertificateEnd)
			}
		}
		if wide {
			more = "\t" + strings.Join([]string{address, labelText(a.Labels), a.Secret}, "\t")
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d%s\n", a.Name, mode, sinceText(a.Connection, now), lag, backlog, a.HeldDeletions, until,
			orDash(a.Connection.Build), argoCD, kubernetes, orDash(a.Connection.Replica), len(a.Problems), more)
	}
	if problems(all) > 0 {
		fmt.Fprintln(out) // what follows has columns of its own
	}
	for i := range all {
		printProblems(out, all[i].Name+": ", all[i].Problems)
	}
}

// sinceText says whether an agent is connected, and for how long if that is known.
func sinceText(c principals.Connection, now time.Time) string {
	if c.Since == nil {
		return string(c.State)
	}
	return fmt.Sprintf("%s for %s", c.State, now.Sub(*c.Since).Round(time.Second))
}

func orDash(text string) string { return cmp.Or(text, "-") }
