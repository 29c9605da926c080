package ops

// HealthAddress is where /healthz and /readyz are served, host:port; empty when they are turned off.
func (s *Server) HealthAddress() string { return s.address(healthPath) }

// MetricsAddress is where /metrics is served, host:port; empty when it is turned off.
func (s *Server) MetricsAddress() string { return s.address(metricsPath) }

// ProfilesAddress is where /debug/pprof/ is served, host:port; empty when it is turned off.
func (s *Server) ProfilesAddress() string { return s.address(profilesPath) }

func (s *Server) address(path string) string {
	for _, one := range s.servers {
		if one.path == path {
			return one.listener.Addr().String()
		}
	}
	return ""
}
