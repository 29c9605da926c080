package installation

import (
	"context"
	_ "embed"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Where Istio is on a site, by the names that its own documents use.
const (
	IstioNamespace = "istio-system"
	// IngressNamespace is the ingress gateway's, and Ingress what it and its ServiceAccount are called.
	IngressNamespace = "istio-ingress"
	Ingress          = "istio-ingressgateway"
)

var (
	//go:embed manifests/istiod-values.yaml
	istiodValues string
	//go:embed manifests/istio-gateway-values.yaml
	gatewayValues string
)

// InstallIstio installs Istio on each site as its documents do, by its own charts: its definitions, istiod, and an ingress gateway at ports 80 and
// 443 of the node. Each site is a mesh, with the trust domain that is given in its place. Their certificates come from the same CA, so they know each other's.
func (l *Lab) InstallIstio(ctx context.Context, trustDomains ...string) error {
	archives, err := l.istioImages(ctx)
	if err != nil {
		return fmt.Errorf("images of Istio: %w", err)
	}
	if err := l.load(ctx, archives); err != nil {
		return err
	}
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "meshes of the lab"})
	if err != nil {
		return err
	}
	var sites errgroup.Group
	for i, s := range l.Sites {
		sites.Go(func() error { return s.installIstio(ctx, trustDomains[i], ca) })
	}
	return sites.Wait()
}

func (s *Site) installIstio(ctx context.Context, trustDomain string, ca *pki.CA) error {
	for _, namespace := range []string{IstioNamespace, IngressNamespace} {
		_, err := s.Kubernetes.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	pair := ca.PEM()
	_, err := s.Kubernetes.CoreV1().Secrets(IstioNamespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cacerts"}, Data: map[string][]byte{
		"ca-cert.pem": pair.Certificate, "ca-key.pem": pair.Key, "root-cert.pem": pair.Certificate, "cert-chain.pem": pair.Certificate,
	}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, release := range []struct{ name, chart, namespace, values string }{
		{"istio-base", toolset.IstioBase, IstioNamespace, ""},
		{"istiod", toolset.IstioDiscovery, IstioNamespace, istiodValues + "\nmeshConfig: {trustDomain: " + trustDomain + "}\n"},
		{Ingress, toolset.IstioGateway, IngressNamespace, gatewayValues + "\nservice: {type: ClusterIP, externalIPs: [" + s.Node.Address + "]}\n"},
	} {
		values, err := s.lab.Host.Write(filepath.Join("istio", s.Name, release.name+".yaml"), []byte(release.values))
		if err != nil {
			return err
		}
		_, err = s.Helm(ctx, "install", release.name, s.lab.Tools.File(release.chart), "--namespace="+release.namespace, "--values="+values, "--wait", "--timeout=4m")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, s.ExplainIn(context.WithoutCancel(ctx), release.namespace, "!none"))
		}
	}
	return nil
}

// Istioctl runs istioctl against the cluster, and returns what it prints.
func (s *Site) Istioctl(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, toolset.Istioctl, args)
}
