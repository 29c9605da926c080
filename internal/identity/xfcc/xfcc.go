// Package xfcc reads the header x-forwarded-client-cert, by which Envoy passes on what it knows of the client certificates of those who
// connect to it. The grammar is that of Envoy's documentation, under "HTTP header manipulation":
//
//	header   = element *( "," element )         one for each proxy that passed the request on, the last proxy's at the right
//	element  = pair *( ";" pair )
//	pair     = key "=" ( plain / quoted )       keys are read in any case
//	plain    = *( any but "," ";" and quotes )
//	quoted   = a text in double quotes, in which a backslash takes away the meaning of what follows it
//
// Whether a header may be believed is for the caller to know: it says what a proxy says, if it comes from one.
package xfcc

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Header is the name of the header, as gRPC's metadata and HTTP/2 write it.
const Header = "x-forwarded-client-cert"

// Element is what one proxy says of its client.
type Element struct {
	// By are the URIs of the proxy's own certificate.
	By []string
	// Hash is the SHA-256 digest of the client's certificate, in lower-case hex.
	Hash string
	// Subject is the subject of the client's certificate, by RFC 2253.
	Subject string
	// URI and DNS are the alternative names of the client's certificate.
	URI, DNS []string
	// Certificate is the client's certificate, nil if the proxy does not say it: Envoy does if "cert" is set in
	// set_current_client_cert_details.
	Certificate *x509.Certificate
}

// Parse reads a header, which has at least one element. Keys that it does not know are skipped. Its errors quote nothing of the header.
func Parse(header string) ([]Element, error) {
	p := parser{rest: header}
	var elements []Element
	for {
		element, err := p.element()
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", len(elements)+1, err)
		}
		elements = append(elements, element)
		if p.rest == "" {
			return elements, nil
		}
		p.rest = p.rest[1:] // the comma
	}
}

// parser reads a header from left to right.
type parser struct{ rest string }

// element reads up to a comma, or the end.
func (p *parser) element() (Element, error) {
	var e Element
	seen := make(map[string]bool)
	for {
		key, value, err := p.pair()
		if err != nil {
			return Element{}, err
		}
		if err := e.set(key, value, seen[key]); err != nil {
			return Element{}, err
		}
		seen[key] = true
		if p.rest == "" || p.rest[0] == ',' {
			return e, e.check()
		}
		p.rest = p.rest[1:] // the semicolon
	}
}

// pair reads up to a semicolon, a comma, or the end. The key is returned in lower case.
func (p *parser) pair() (key, value string, err error) {
	at := strings.IndexAny(p.rest, `=;,"`)
	if at <= 0 || p.rest[at] != '=' {
		return "", "", errors.New("want pairs of key=value, with semicolons between them")
	}
	key = p.rest[:at]
	if strings.ContainsFunc(key, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) {
		return "", "", errors.New("a key has other characters than letters")
	}
	p.rest = p.rest[at+1:]
	if strings.HasPrefix(p.rest, `"`) {
		value, err = p.quoted()
	} else {
		value, err = p.plain()
	}
	return strings.ToLower(key), value, err
}

// plain reads a value without quotes. It may have an equals sign in it, as URIs do: Envoy does not quote those.
func (p *parser) plain() (string, error) {
	end := strings.IndexAny(p.rest, `;,"`)
	switch {
	case end < 0:
		end = len(p.rest)
	case p.rest[end] == '"':
		return "", errors.New("there is a quote within a value that does not begin with one")
	}
	value := p.rest[:end]
	p.rest = p.rest[end:]
	return value, nil
}

// quoted reads a value in quotes. It is returned as it is written, but for escaped quotes: a backslash in a subject is RFC 2253's own.
func (p *parser) quoted() (string, error) {
	var value strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '\\' && i+1 < len(p.rest):
			i++
			if p.rest[i] != '"' {
				value.WriteByte(c)
			}
			value.WriteByte(p.rest[i])
		case c == '"':
			p.rest = p.rest[i+1:]
			if p.rest != "" && p.rest[0] != ';' && p.rest[0] != ',' {
				return "", errors.New("something follows a value in quotes")
			}
			return value.String(), nil
		default:
			value.WriteByte(c)
		}
	}
	return "", errors.New("a quote is not closed")
}

// set takes in a pair. again says that the element had the key before.
func (e *Element) set(key, value string, again bool) (err error) {
	if value == "" && (key == "by" || key == "uri" || key == "dns") {
		return nil // Envoy's way to say that there is none
	}
	switch key {
	case "by":
		e.By = append(e.By, value)
		return nil
	case "uri":
		e.URI = append(e.URI, value)
		return nil
	case "dns":
		e.DNS = append(e.DNS, value)
		return nil
	case "hash", "subject", "cert", "chain":
		if again {
			return fmt.Errorf("it has the key %s twice", key)
		}
	}
	switch key {
	case "hash":
		e.Hash = strings.ToLower(value)
		if digest, err := hex.DecodeString(value); err != nil || len(digest) != sha256.Size {
			return errors.New("its Hash is no SHA-256 digest")
		}
	case "subject":
		e.Subject = value
	case "cert":
		e.Certificate, err = certificate(value)
	}
	return err
}

// certificate reads the value of Cert: PEM, as a URL encodes it.
func certificate(value string) (*x509.Certificate, error) {
	text, err := url.PathUnescape(value)
	if err != nil {
		return nil, errors.New("its Cert is not URL-encoded")
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" || strings.TrimSpace(string(rest)) != "" {
		return nil, errors.New("its Cert is not one certificate in PEM form")
	}
	x, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("its Cert: %w", err)
	}
	return x, nil
}

// check refuses an element whose parts contradict each other.
func (e *Element) check() error {
	if e.Certificate == nil {
		return nil
	}
	digest := sha256.Sum256(e.Certificate.Raw)
	if e.Hash != "" && e.Hash != hex.EncodeToString(digest[:]) {
		return errors.New("its Hash is not that of its Cert")
	}
	e.Hash = hex.EncodeToString(digest[:])
	var uris []string
	for _, uri := range e.Certificate.URIs {
		uris = append(uris, uri.String())
	}
	if len(e.URI) == 0 {
		e.URI = uris // the proxy was not told to say it
	}
	if !slices.Equal(e.URI, uris) {
		return errors.New("its URI is not that of its Cert")
	}
	return nil
}
