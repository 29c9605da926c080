package commands

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/redistls"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/program"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

const secretNameFlag = "secret-name"

func redisCommands(e *endpoints) *cobra.Command {
	return group(&cobra.Command{
		Use: "redis", Short: "Have Argo CD's Redis speak TLS, on the hub or on an agent's cluster",
		Long: `Have Argo CD's Redis speak TLS, and Argo CD's programs speak it to Redis. The cluster is that of --principal-context and
--principal-namespace, which may be an agent's here.`,
	}, redisCertsCommand(e), redisConfigureCommand(e), redisArgoCDCommand(e))
}

// redisCerts are the flags of redis generate-certs.
type redisCerts struct {
	issueFlags

	names          serverNames
	secret         string
	fromSecret, ca string
}

func redisCertsCommand(e *endpoints) *cobra.Command {
	var r redisCerts
	cmd := &cobra.Command{
		Use: "generate-certs", Short: "Issue the certificate of Redis", Args: program.NoArguments,
		Long: `Issue the certificate of Argo CD's Redis, into a Secret with its key and its CA. It is for the names of Service argocd-redis and for localhost.
With --secret-name ` + ca.RedisProxySecret + ` it is redisproxy's.

On the hub the CA is the hub's. On an agent's cluster, which has no key of that, the certificate is of a CA of its own, whose key is thrown away:
the clients of Redis read the CA from the same Secret. --cert-from-secret and --ca-from-secret take a certificate of another CA.`,
		Example: "  argocd-agentctl redis generate-certs --principal-context hub\n" +
			"  argocd-agentctl redis generate-certs --principal-context hub --secret-name " + ca.RedisProxySecret,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd, e) },
	}
	r.declareIssue(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&r.names.names, "dns", nil, "DNS names by which Redis is reached, besides those of its Service")
	flags.StringSliceVar(&r.names.addresses, "ip", []string{"127.0.0.1"}, "IP addresses by which Redis is reached")
	flags.StringVar(&r.secret, secretNameFlag, ca.RedisSecret, "Secret that gets the certificate")
	flags.StringVar(&r.fromSecret, "cert-from-secret", "", "Secret that has the certificate already, as [namespace/]name")
	flags.StringVar(&r.ca, "ca-from-secret", "", "Secret that has its CA, as [namespace/]name")
	return cmd
}

func (r *redisCerts) run(cmd *cobra.Command, e *endpoints) error {
	if err := errors.Join(settings.NonEmpty(r.secret), settings.DNSSubdomain(r.secret)); err != nil {
		return fmt.Errorf("--%s: %q: %w", secretNameFlag, r.secret, err)
	}
	if (r.fromSecret == "") != (r.ca == "") {
		return errors.New("--cert-from-secret and --ca-from-secret: set both or neither")
	}
	extra, err := r.names.parse()
	if err != nil {
		return err
	}
	n, err := r.certificate(cmd)
	if err != nil {
		return err
	}
	place, err := e.redisCluster()
	if err != nil {
		return err
	}
	into, err := r.into(cmd, place.Namespace, func() (*cluster.Client, error) { return place, nil })
	if err != nil {
		return err
	}
	if r.fromSecret != "" {
		return r.copy(cmd, place, into)
	}
	if extra.Names = append(extra.Names, "localhost"); r.secret == ca.RedisProxySecret {
		extra.Names = append(extra.Names, "argocd-redis-proxy") // as argocd-agent's Service is called
	}
	wanted := ca.Redis(r.secret, place.Namespace, extra)
	issuer, err := e.redisCA(cmd, place)
	if err != nil {
		return err
	}
	if issuer == nil {
		return resultPrinter(cmd)(ca.IssueAlone(cmd.Context(), into, wanted, n))
	}
	return resultPrinter(cmd)(issuer.Issue(cmd.Context(), into, wanted, n))
}

// copy puts a certificate of another CA into the Secret.
func (r *redisCerts) copy(cmd *cobra.Command, place, into *cluster.Client) error {
	pair, err := reference(place, r.fromSecret)
	if err != nil {
		return fmt.Errorf("--cert-from-secret: %w", err)
	}
	roots, err := reference(place, r.ca)
	if err != nil {
		return fmt.Errorf("--ca-from-secret: %w", err)
	}
	found, err := agents.FromSecrets(cmd.Context(), pair, roots)
	if err != nil {
		return err
	}
	return resultPrinter(cmd)(ca.Copy(cmd.Context(), into, r.secret, pki.Pair{Certificate: found.TLS.Certificate, Key: found.TLS.Key}, found.TLS.CAData, r.replace))
}

// redisCluster returns a client for the cluster whose Redis is meant.
func (e *endpoints) redisCluster() (*cluster.Client, error) {
	return cluster.New(cluster.Options{
		Title: "the cluster", Kubeconfig: e.kubeconfig, Context: e.principalContext, Namespace: e.principalNamespace, ContextFlag: "--" + principalContextFlag,
	})
}

// redisCA returns the CA of a cluster; nil if its key is elsewhere, as on a spoke.
func (e *endpoints) redisCA(cmd *cobra.Command, place *cluster.Client) (*ca.CA, error) {
	home, err := e.ca(cmd, place)
	if err != nil {
		return nil, err
	}
	hasKey, err := ca.HasKey(cmd.Context(), home)
	if err != nil {
		return nil, err
	}
	if hasKey {
		return ca.Load(cmd.Context(), home)
	}
	if _, err := ca.LoadTrusted(cmd.Context(), place); err != nil {
		return nil, fmt.Errorf("%w; on an agent's cluster, with: argocd-agentctl pki propagate", err)
	}
	return nil, nil
}

func redisConfigureCommand(e *endpoints) *cobra.Command {
	var deployment, secretName string
	cmd := &cobra.Command{
		Use: "configure-tls", Short: "Have Redis, and Argo CD's programs that use it, speak TLS", Args: program.NoArguments,
		Long: `Have the Deployment of Redis serve TLS, and no plain text, at its port, and then do what argocd-agentctl redis configure-argocd does. Their Pods are
replaced. Redis forgets what it has: it is a cache.`,
		Example: "  argocd-agentctl redis configure-tls --principal-context hub",
		RunE: func(cmd *cobra.Command, _ []string) error {
			place, err := e.redisCluster()
			if err != nil {
				return err
			}
			if err := resultPrinter(cmd)(redistls.Redis(cmd.Context(), place, deployment, secretName)); err != nil {
				return err
			}
			return configureArgoCD(cmd, place, secretName, redistls.RepoServer, redistls.Controller, redistls.Server)
		},
	}
	cmd.Flags().StringVar(&deployment, "redis-deployment", "argocd-redis", "Deployment of Redis")
	cmd.Flags().StringVar(&secretName, secretNameFlag, ca.RedisSecret, "Secret of its certificate")
	cmd.Flags().Bool("skip-scale-down", false, "does nothing: what uses Redis is replaced, and not stopped")
	_ = cmd.Flags().MarkHidden("skip-scale-down") // it was declared
	return cmd
}

func redisArgoCDCommand(e *endpoints) *cobra.Command {
	var secretName string
	components := []struct {
		flag string
		redistls.Component
	}{{"skip-repo-server", redistls.RepoServer}, {"skip-application-controller", redistls.Controller}, {"skip-server", redistls.Server}}
	skipped := make([]bool, len(components))
	cmd := &cobra.Command{
		Use: "configure-argocd", Short: "Have Argo CD's programs that use Redis speak TLS to it", Args: program.NoArguments,
		Long: `Have argocd-server, repo server and application controller use Redis by TLS, and trust the CA in a Secret: those of them that are there. Their
Pods are replaced.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			place, err := e.redisCluster()
			if err != nil {
				return err
			}
			var wanted []redistls.Component
			for i, c := range components {
				if !skipped[i] {
					wanted = append(wanted, c.Component)
				}
			}
			return configureArgoCD(cmd, place, secretName, wanted...)
		},
	}
	for i, c := range components {
		cmd.Flags().BoolVar(&skipped[i], c.flag, false, "leave it as it is")
	}
	cmd.Flags().StringVar(&secretName, secretNameFlag, ca.RedisSecret, "Secret of the CA")
	return cmd
}

// configureArgoCD configures programs of Argo CD, and says what else uses Redis.
func configureArgoCD(cmd *cobra.Command, place *cluster.Client, secretName string, components ...redistls.Component) error {
	if err := redistls.ArgoCD(cmd.Context(), place, secretName, resultPrinter(cmd), components...); err != nil {
		return err
	}
	others := "warning: an agent needs agent.redis.tls.enabled in argocd-agent-params, and redisproxy --redis-tls-enabled and --redis-ca-path"
	if slices.Contains(components, redistls.Server) {
		others += "; an argocd-server that uses redisproxy needs it to have --tls-cert and --tls-key, of Secret " + ca.RedisProxySecret
	}
	fmt.Fprintln(cmd.ErrOrStderr(), others)
	return nil
}
