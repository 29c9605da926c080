package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// printTable shows every Application as the hub and its spoke have it.
func printTable(ctx context.Context, out io.Writer, l *lab.Lab) error {
	rows := []string{"", "APPLICATION\tON THE HUB\tON THE SPOKE\tRESOURCES"}
	for _, spoke := range spokes() {
		for _, name := range slices.Sorted(maps.Keys(applications())) {
			hub, err := l.Hub.Get(ctx, argocd.Named(spoke, name))
			if err != nil {
				return err
			}
			there, err := l.Spoke(spoke).Get(ctx, argocd.Named(lab.Namespace, name))
			if err != nil {
				return err
			}
			rows = append(rows, strings.Join([]string{spoke + "/" + name, state(hub), state(there), resources(there)}, "\t"))
		}
	}
	return printAligned(out, rows)
}

// printAligned prints rows of cells that are separated by tabs.
func printAligned(out io.Writer, rows []string) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if _, err := io.WriteString(table, strings.Join(rows, "\n")+"\n"); err != nil {
		return err
	}
	return table.Flush()
}

func state(application *unstructured.Unstructured) string {
	if application == nil {
		return "missing"
	}
	return argocd.Sync(application) + ", " + argocd.Health(application)
}

// resources lists the kinds that an Application has put on its spoke.
func resources(application *unstructured.Unstructured) string {
	if application == nil {
		return ""
	}
	list, _, _ := unstructured.NestedSlice(application.Object, "status", "resources")
	var kinds []string
	for _, resource := range list {
		if fields, ok := resource.(map[string]any); ok {
			kinds = append(kinds, fmt.Sprint(fields["kind"]))
		}
	}
	return strings.Join(kinds, ", ")
}

// printGuide tells where to look around, and how to stop.
func printGuide(out io.Writer, l *lab.Lab) error {
	kubectl := l.Tools.Program(toolset.Kubectl) + " --kubeconfig "
	rows := []string{
		"",
		"Argo CD of the hub\t" + l.Hub.ArgoCD.URL + "/api/v1/applications   (the API, without login; its Go module comes without the UI's pages)",
		"Hub\t" + kubectl + l.Hub.Kubeconfig + " get applications -A",
	}
	for _, spoke := range spokes() {
		rows = append(rows, "Spoke "+spoke+"\t"+kubectl+l.Spoke(spoke).Kubeconfig+" get applications,pods -A")
	}
	rows = append(rows, "Agents\tKUBECONFIG="+l.Kubeconfigs()+" "+l.AgentctlPath()+" agent list")
	rows = append(rows, "Metrics of the principal\t"+l.Principal.MetricsURL)
	for _, spoke := range spokes() {
		rows = append(rows, "Metrics of agent "+spoke+"\t"+l.Agent(spoke).MetricsURL)
	}
	rows = append(rows, "Git repository\t"+l.Git.URL, "Logs\t"+l.Host.Logs(), "", "Ctrl-C stops everything and leaves nothing behind.")
	return printAligned(out, rows)
}
