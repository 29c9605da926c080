package certs

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

// Reason is why a handshake failed, for metrics and decisions.
type Reason string

// The reasons. RefusedByPeer means that the other side did not accept our certificate; the ones before it that we did
// not accept the other side's.
const (
	Expired          Reason = "expired"
	NotYetValid      Reason = "not_yet_valid"
	UnknownAuthority Reason = "unknown_authority"
	WrongName        Reason = "wrong_name"
	NoCertificate    Reason = "no_certificate"
	BadCertificate   Reason = "bad_certificate"
	RefusedByPeer    Reason = "refused_by_peer"
	NoCommonVersion  Reason = "no_common_version"
	NoTLS            Reason = "no_tls"
	NoMaterial       Reason = "no_material"
	Disconnected     Reason = "disconnected"
	Other            Reason = "other"
)

// HandshakeError says why a handshake failed and what to do about it. Its text is for operators.
type HandshakeError struct {
	Reason Reason
	text   string
	cause  error
}

// Error describes the reason, and then the cause as the TLS library put it.
func (e *HandshakeError) Error() string { return "TLS handshake: " + e.explanation() }

// explanation is Error without what failed. Of what is not valid now the library's cause says the time, and each attempt would be another
// error.
func (e *HandshakeError) explanation() string {
	switch {
	case e.text == "":
		return e.cause.Error()
	case e.Reason == Expired || e.Reason == NotYetValid:
		return e.text
	}
	return e.text + " (" + e.cause.Error() + ")"
}

// Unwrap returns the cause.
func (e *HandshakeError) Unwrap() error { return e.cause }

// materialError marks the error of a handshake for which we had no material of our own.
type materialError struct{ error }

// Unwrap returns the cause.
func (e materialError) Unwrap() error { return e.error }

// side is one end of a handshake, as far as explanations differ between them.
type side struct {
	// peer and own are what messages call the certificates.
	peer, own string
	// missing says what to do when we require a certificate and got none.
	missing string
	// name is the name that we required of the peer, if any.
	name string
	// material is ours.
	material Material
	// accepted are the raw names of the CAs that the peer said it accepts.
	accepted [][]byte
}

// explain turns what the TLS library says into what a person can act on. It returns a *HandshakeError.
func (s side) explain(err error) error {
	var (
		verification *tls.CertificateVerificationError
		header       tls.RecordHeaderError
		operation    *net.OpError
		missing      materialError
	)
	failure := func(reason Reason, text string) error {
		return &HandshakeError{Reason: reason, text: text, cause: err}
	}
	switch {
	case errors.As(err, &missing):
		return failure(NoMaterial, "")
	case errors.As(err, &verification):
		return s.explainVerification(verification)
	case errors.As(err, &header):
		return failure(NoTLS, "the other side does not speak TLS: is it set to plain text, or is this the wrong port?")
	case errors.As(err, &operation) && operation.Op == "remote error":
		return failure(RefusedByPeer, s.explainAlert(strings.TrimPrefix(operation.Err.Error(), "tls: ")))
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed):
		return failure(Disconnected, "the other side hung up")
	case strings.Contains(err.Error(), "didn't provide a certificate"):
		return failure(NoCertificate, s.missing)
	case strings.Contains(err.Error(), "unsupported versions"):
		return failure(NoCommonVersion, "the two sides have no TLS version in common: compare their minimum and maximum versions")
	default:
		return failure(Other, "")
	}
}

// explainVerification explains why we did not accept the peer's certificate.
func (s side) explainVerification(err *tls.CertificateVerificationError) *HandshakeError {
	var (
		leaf    = err.UnverifiedCertificates[0]
		invalid x509.CertificateInvalidError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		wrong   wrongIDError
		result  = &HandshakeError{Reason: BadCertificate, cause: err.Err}
	)
	switch {
	case errors.As(err.Err, &invalid) && invalid.Reason == x509.Expired:
		result.Reason, result.text = s.explainTime(leaf, invalid.Cert)
	case errors.As(err.Err, &unknown):
		result.Reason = UnknownAuthority
		result.text = fmt.Sprintf("%s %s was issued by %s, which is none of the CAs trusted here (%s)%s: "+
			"issue it by one of those, or add its CA to them", s.peer, describe(leaf), quote(leaf.Issuer.String()), s.trusted(), s.namesake(leaf))
	case errors.As(err.Err, &name):
		result.Reason = WrongName
		result.text = fmt.Sprintf("%s %s is for %s, but %s was wanted: connect by one of its names, or issue one that has this name",
			s.peer, describe(leaf), names(leaf), quote(s.name))
	case errors.As(err.Err, &wrong):
		result.Reason = WrongName
		result.text = fmt.Sprintf("%s %s is for %s, but %s was wanted, by the setting --principal-spiffe-id", s.peer, describe(leaf), names(leaf), quote(wrong.wanted.String()))
	default:
		result.text = fmt.Sprintf("%s %s cannot be used", s.peer, describe(leaf))
	}
	return result
}

// explainTime explains a certificate that is not valid now: the peer's leaf, or one of its CAs.
func (s side) explainTime(leaf, invalid *x509.Certificate) (Reason, string) {
	whose := s.peer + " " + describe(leaf)
	if invalid != nil && !invalid.Equal(leaf) {
		whose = "CA " + describe(invalid) + " of " + whose
	} else {
		invalid = leaf
	}
	if time.Now().Before(invalid.NotBefore) {
		return NotYetValid, fmt.Sprintf("%s is not valid before %s: compare the clocks of both machines", whose, stamp(invalid.NotBefore))
	}
	return Expired, fmt.Sprintf("%s expired at %s: renew it, or look why its renewal was not picked up", whose, stamp(invalid.NotAfter))
}

// explainAlert explains why the peer refused us, from its one-line alert and from what we know of ourselves.
func (s side) explainAlert(alert string) string {
	leaf := s.material.leaf()
	refused := fmt.Sprintf("the other side refused %s", s.own)
	switch {
	case alert == "certificate required" || (strings.Contains(alert, "certificate") && leaf == nil):
		return "the other side requires a certificate and none is configured here: configure a client certificate and its key"
	case strings.Contains(alert, "certificate") && time.Now().After(leaf.NotAfter):
		return fmt.Sprintf("%s %s: it expired at %s: renew it", refused, describe(leaf), stamp(leaf.NotAfter))
	case strings.Contains(alert, "certificate") && time.Now().Before(leaf.NotBefore):
		return fmt.Sprintf("%s %s: it is not valid before %s: compare the clocks of both machines", refused, describe(leaf), stamp(leaf.NotBefore))
	case alert == "expired certificate":
		return fmt.Sprintf("%s %s as expired, although it is valid from %s to %s: compare the clocks of both machines, and look whether its CA expired",
			refused, describe(leaf), stamp(leaf.NotBefore), stamp(leaf.NotAfter))
	case alert == "unknown certificate authority":
		return fmt.Sprintf("%s %s: its issuer %s is not trusted there%s: issue it by a trusted CA, or add its CA there",
			refused, describe(leaf), quote(leaf.Issuer.String()), s.trustedThere())
	case strings.Contains(alert, "certificate"):
		return fmt.Sprintf("%s %s for %s, issued by %s: it may not trust that issuer, or have wanted another name: its log says which",
			refused, describe(leaf), names(leaf), quote(leaf.Issuer.String()))
	case alert == "protocol version not supported":
		return "the two sides have no TLS version in common: compare their minimum and maximum versions"
	case alert == "internal error":
		return "the other side had a problem of its own, maybe no certificate yet: see its log"
	default:
		return "the other side ended it: see its log"
	}
}

// trusted lists the CAs that we trust.
func (s side) trusted() string {
	var subjects []string
	for _, ca := range s.material.CAs {
		subjects = append(subjects, quote(ca.Subject.String()))
	}
	if len(subjects) == 0 {
		return "those of the operating system"
	}
	return strings.Join(subjects, ", ")
}

// namesake tells a CA that we trust from the issuer of a certificate that has the same name and another key, as after a CA was
// replaced. The fingerprint is as argocd-agentctl pki inspect shows it. It is empty if there is no such CA.
func (s side) namesake(leaf *x509.Certificate) string {
	for _, ca := range s.material.CAs {
		if !bytes.Equal(ca.RawSubject, leaf.RawIssuer) || bytes.Equal(ca.SubjectKeyId, leaf.AuthorityKeyId) {
			continue
		}
		return fmt.Sprintf(", which has the same name and another key: trusted is the CA with the SHA-256 fingerprint %x and the key ID %x, and the certificate's is %x",
			sha256.Sum256(ca.Raw), ca.SubjectKeyId, leaf.AuthorityKeyId)
	}
	return ""
}

// trustedThere lists the CAs that the peer said it accepts, if it said so.
func (s side) trustedThere() string {
	var subjects []string
	for _, raw := range s.accepted {
		var sequence pkix.RDNSequence
		if rest, err := asn1.Unmarshal(raw, &sequence); err == nil && len(rest) == 0 {
			subjects = append(subjects, quote(sequence.String()))
		}
	}
	if len(subjects) == 0 {
		return ""
	}
	return " (it trusts " + strings.Join(subjects, ", ") + ")"
}

// plain are the characters of names that need no quotes.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=.,:/@*+_-"

// quote keeps what a peer wrote from passing for our own words. Most names need no quotes, and read better without:
// gRPC and loggers quote the whole again.
func quote(text string) string {
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return fmt.Sprintf("%q", text)
}

// describe names a certificate by its subject, or else by its names. The subject of an X.509-SVID tells it from no other: its ID does.
func describe(certificate *x509.Certificate) string {
	if certificate.Subject.CommonName == "" && len(certificate.URIs) > 0 {
		return "of " + names(certificate)
	}
	if subject := certificate.Subject.String(); subject != "" {
		return quote(subject)
	}
	return "of " + names(certificate)
}

// names lists what a certificate may be addressed by. Its common name is not among them.
func names(certificate *x509.Certificate) string {
	var all []string
	for _, name := range certificate.DNSNames {
		all = append(all, quote(name))
	}
	for _, address := range certificate.IPAddresses {
		all = append(all, quote(address.String()))
	}
	for _, id := range certificate.URIs {
		all = append(all, quote(id.String()))
	}
	if len(all) == 0 {
		return "no DNS name or IP address"
	}
	return strings.Join(all, ", ")
}
