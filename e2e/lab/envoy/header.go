package envoy

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"net/url"
	"strings"
)

// ClientCertHeader is what an Envoy writes into x-forwarded-client-cert of a client with a certificate that has one URI, by
// set_current_client_cert_details of uri, and of cert if that is wanted.
func ClientCertHeader(certificate *x509.Certificate, whole bool) string {
	digest := sha256.Sum256(certificate.Raw)
	header := "By=spiffe://hub.test/ns/argocd/sa/argocd-agent-principal;Hash=" + hex.EncodeToString(digest[:])
	if whole {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
		header += `;Cert="` + strings.ReplaceAll(url.QueryEscape(string(text)), "+", "%20") + `"`
	}
	return header + ";URI=" + certificate.URIs[0].String()
}
