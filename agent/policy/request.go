package policy

import (
	"mime"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// impersonatePrefix begins the names of the impersonation headers.
const impersonatePrefix = "Impersonate-"

// Request is a request as the API server parses it.
type Request struct {
	request.RequestInfo
	// Fields is the field selector of a list or a watch.
	Fields map[string]string
	// Impersonates reports whether there are impersonation headers.
	Impersonates bool
	// MediaType is the media type of the body, without parameters.
	MediaType string
	// Body returns the whole body. It is called only if the decision depends on the body. Its error is an *apihttp.Error.
	Body func() ([]byte, error)
}

// Parse parses a request. It refuses with an *apihttp.Error what servers could read differently. It does not read the body.
func Parse(r *http.Request) (*Request, error) {
	if err := checkMethod(r); err != nil {
		return nil, err
	}
	if err := checkPath(r.URL); err != nil {
		return nil, err
	}
	info, err := parser().NewRequestInfo(&http.Request{Method: r.Method, URL: &url.URL{Path: r.URL.Path}})
	if err != nil {
		return nil, refuse("%v", err)
	}
	parsed := &Request{RequestInfo: *info}
	if info.IsResourceRequest {
		if err := checkResource(info); err != nil {
			return nil, err
		}
	}
	if r.URL.RawQuery != "" {
		if err := parsed.readQuery(r); err != nil {
			return nil, err
		}
	}
	return parsed, parsed.readHeader(r.Header)
}

// parser returns the API server's own parser.
func parser() *request.RequestInfoFactory {
	return &request.RequestInfoFactory{APIPrefixes: prefixes, GrouplessAPIPrefixes: groupless}
}

// The API server's prefixes, which never change.
//
//nolint:gochecknoglobals // constants, in a type that has none
var (
	prefixes  = sets.NewString("api", "apis")
	groupless = sets.NewString("api")
)

func refuse(format string, a ...any) error {
	return apihttp.Errorf(http.StatusBadRequest, "the agent refuses this request: "+format, a...)
}

func checkMethod(r *http.Request) error {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return nil
	default:
		return apihttp.Errorf(http.StatusMethodNotAllowed, "the agent does not pass on the method %.20q", r.Method)
	}
}

// checkPath accepts a path that is unambiguous: without empty, relative or escaped segments, and without characters that a
// router could take for a separator.
func checkPath(u *url.URL) error {
	switch {
	case u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || !strings.HasPrefix(u.Path, "/"):
		return refuse("its target must be a path")
	case u.RawPath != "":
		return refuse("its path is escaped in an unusual way")
	case u.Fragment != "":
		return refuse("it has a fragment")
	case u.Path == "/":
		return nil
	}
	for _, c := range []byte(u.Path) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`%;\?#`, c) >= 0 {
			return refuse("its path holds the byte %q", c)
		}
	}
	segments := strings.Split(u.Path[1:], "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return refuse("its path has an empty or relative segment")
		}
	}
	if first := segments[0]; !prefixes.Has(first) && prefixes.Has(strings.ToLower(first)) {
		return refuse("the API is written in lower case")
	}
	return nil
}

// checkResource refuses the path forms of old API servers, and those that routers and authorizers are known to read
// differently.
func checkResource(info *request.RequestInfo) error {
	words := []string{info.APIVersion, info.Resource}
	if info.APIPrefix == "apis" {
		words = append(words, info.APIGroup)
	}
	// A path that begins with namespaces/ has a namespace, so it must be good even when it is that of a Namespace itself.
	if info.Namespace != "" {
		words = append(words, info.Namespace)
	}
	if info.Subresource != "" {
		words = append(words, strings.ReplaceAll(info.Subresource, "_", "-"))
	}
	for _, word := range words {
		if !plainName(word) {
			return refuse("%.80q is not written in lower case letters, digits, dots and dashes", word)
		}
	}
	switch {
	case info.Verb == "watch" || info.Verb == "proxy":
		return refuse("the path prefix /%s/ is not passed on; watch with the parameter watch=true, reach a pod by its subresource proxy", info.Verb)
	case info.Resource == "watch" || info.Resource == "proxy":
		return refuse("a resource is not called %q", info.Resource)
	case info.Resource == "namespaces" && info.APIGroup != "":
		return refuse("namespaces are in the core API only")
	}
	return nil
}

// plainName reports whether a word has only the characters of group, version, resource and namespace names.
func plainName(word string) bool {
	if word == "" || strings.Trim(word, "-.") != word {
		return false
	}
	for _, c := range []byte(word) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// readQuery parses the parameters that the decision depends on, and refuses ambiguous ones.
func (r *Request) readQuery(from *http.Request) error {
	query, err := url.ParseQuery(from.URL.RawQuery)
	if err != nil {
		return refuse("its query cannot be read: %v", err)
	}
	for key, values := range query {
		if len(values) > 1 && !r.mayRepeat(key) {
			return refuse("its parameter %.40q is repeated", key)
		}
	}
	if r.Verb != "list" && r.Verb != "deletecollection" {
		// The parameters of a proxied request are its backend's, but those of a single object are the API server's, and it
		// watches no single object.
		if query.Has("watch") && r.IsResourceRequest && r.Subresource != "proxy" {
			return refuse("only a collection can be watched: use the fieldSelector metadata.name")
		}
		return nil
	}
	return r.readListOptions(from, query)
}

// mayRepeat reports whether a parameter may occur several times: lists, and parameters for another server.
func (r *Request) mayRepeat(key string) bool {
	switch r.Subresource {
	case "proxy":
		return true
	case "exec", "attach":
		return key == "command"
	case "portforward":
		return key == "ports"
	default:
		return false
	}
}

func (r *Request) readListOptions(from *http.Request, query url.Values) error {
	switch watch := query["watch"]; {
	case len(watch) == 0:
	case watch[0] == "true", watch[0] == "1", watch[0] == "false", watch[0] == "0":
	default:
		return refuse("its parameter watch must be true or false")
	}
	options := internalversion.ListOptions{}
	if err := scheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &options); err != nil {
		return refuse("its query cannot be read: %v", err)
	}
	info, err := parser().NewRequestInfo(from)
	if err != nil {
		return refuse("%v", err)
	}
	r.RequestInfo = *info
	if options.FieldSelector == nil {
		return nil
	}
	r.Fields = make(map[string]string)
	for _, must := range options.FieldSelector.Requirements() {
		if must.Operator != selection.Equals && must.Operator != selection.DoubleEquals {
			continue // it only restricts the response further
		}
		if _, twice := r.Fields[must.Field]; twice {
			return refuse("its fieldSelector names %.80q twice", must.Field)
		}
		r.Fields[must.Field] = must.Value
	}
	return nil
}

func (r *Request) readHeader(header http.Header) error {
	for name := range header {
		if strings.HasPrefix(name, impersonatePrefix) {
			r.Impersonates = true
		}
	}
	value := header.Get("Content-Type")
	if value == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(value)
	if err != nil {
		return refuse("its Content-Type cannot be read: %v", err)
	}
	r.MediaType = media
	return nil
}
