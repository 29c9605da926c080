package cluster

import (
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Print returns a client for a namespace of a cluster that it cannot reach: Put writes each Secret to out as YAML, with all that is
// in it, for kubectl apply or GitOps. What is in the cluster is not known, so each is as for a new one.
func Print(namespace string, out io.Writer) *Client {
	return &Client{Namespace: namespace, title: "the output", out: out}
}

// print writes a Secret as YAML, as a document of its own.
func (c *Client) print(want Change) (*corev1.Secret, error) {
	secret := c.empty(want)
	if err := want.Write(secret); err != nil {
		return nil, err
	}
	secret.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	text, err := yaml.Marshal(secret)
	if err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}
	if _, err := fmt.Fprintf(c.out, "---\n%s", text); err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}
	return secret, nil
}

// DryRun returns a client for the same place that writes nothing: the API server is asked whether it would accept each Secret.
func (c *Client) DryRun() *Client {
	other := *c
	other.dryRun = []string{metav1.DryRunAll}
	return &other
}
