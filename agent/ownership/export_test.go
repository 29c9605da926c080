package ownership

// SettingsLoaded reports whether Argo CD's settings are loaded.
func (x *Index) SettingsLoaded() bool { return x.settings.Ready() == nil }

// Listening reports whether there is a subscription to notifications.
func (x *Index) Listening() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.subscribed
}
