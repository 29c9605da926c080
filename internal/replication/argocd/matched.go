package argocd

import (
	"fmt"
	"strings"
)

// checkMatched returns an error if a text of an agent's application is longer than the texts for which the patterns of that agent's
// projects are bounded: Argo CD on the hub matches them with each other, for as long as it takes.
func checkMatched(spec map[string]any) error {
	destination, _ := spec["destination"].(map[string]any)
	if namespace, _ := destination["namespace"].(string); len(namespace) > nameLength {
		return fmt.Errorf("spec.destination.namespace: %.100q has %d characters: want at most %d, as Kubernetes has it for namespaces",
			namespace, len(namespace), nameLength)
	}
	for _, source := range sourcesOf(spec) {
		url, _ := source["repoURL"].(string)
		if length := matchedLength(url); length > addressLength {
			return fmt.Errorf("spec: the repoURL %.100q has %d characters: the hub shows applications of repositories whose URL has at most %d, "+
				"and each that is not plain counts three times: give the repository a shorter URL", url, length, addressLength)
		}
	}
	return nil
}

// sourcesOf returns the objects of an application's spec that name a repository.
func sourcesOf(spec map[string]any) []map[string]any {
	sources, _ := spec["sources"].([]any)
	hydrator, _ := spec["sourceHydrator"].(map[string]any)
	sources = append([]any{spec["source"], hydrator["drySource"], hydrator["syncSource"]}, sources...)
	var out []map[string]any
	for _, source := range sources {
		if object, ok := source.(map[string]any); ok {
			out = append(out, object)
		}
	}
	return out
}

// matchedLength returns how long a repository's URL may be where it is matched. Argo CD parses it and puts it together again
// (git.NormalizeGitURL), with a percent sign and two digits for a byte that is not plain.
func matchedLength(url string) int {
	n := 0
	for _, b := range []byte(url) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', strings.IndexByte("-._~/:@?#%=&+$,;", b) >= 0:
			n++
		default:
			n += len("%00")
		}
	}
	return n
}
