package ops

import (
	"net/http"
	"net/http/pprof"
)

const profilesPath = "/debug/pprof/"

// profilesMux serves what `go tool pprof` asks for. The import puts the same on the default mux: never serve that one.
func profilesMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc(profilesPath, pprof.Index)
	mux.HandleFunc(profilesPath+"cmdline", pprof.Cmdline)
	mux.HandleFunc(profilesPath+"profile", pprof.Profile)
	mux.HandleFunc(profilesPath+"symbol", pprof.Symbol)
	mux.HandleFunc(profilesPath+"trace", pprof.Trace)
	return mux
}
