package cluster

// Result is what became of a Secret, for the user.
type Result struct {
	// Where names the Secret.
	Where   string
	Outcome Outcome
	// DryRun says that nothing was written.
	DryRun bool
	// About says what is in it.
	About string
	// Notes are warnings.
	Notes []string
}

// String says so on one line, without the notes.
func (r Result) String() string {
	outcome := string(r.Outcome)
	if r.DryRun {
		outcome += " (dry run)"
	}
	return r.Where + ": " + outcome + ": " + r.About
}
