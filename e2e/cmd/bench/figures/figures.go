// Package figures turns what the benchmark measured, several times over, into figures beside their floor and beside what
// they must reach, and writes them down. It measures nothing.
package figures

import (
	"math"
	"slices"
	"time"
)

// Units of figures.
const (
	Microseconds       = "us"
	Milliseconds       = "ms"
	Seconds            = "s"
	PerSecond          = "/s"
	Megabytes          = "MB" // a million bytes
	MegabytesPerSecond = "MB/s"
	Kilobytes          = "kB" // a thousand bytes
	Times              = "x"  // one figure divided by another
	Number             = ""   // of what is counted
)

// Contenders, as people call them.
const (
	Ours  = "ours"
	Floor = "the floor" // the least that the same work can take
	Relay = "relay"     // programs that pass bytes on without a look, as many as ours: the least that going through any takes
)

// Figure is one thing that was measured.
type Figure struct {
	Name  string
	Unit  string
	Value float64
}

// Sample is what one run of a part measured.
type Sample []Figure

// Duration is a figure of a time.
func Duration(name, unit string, d time.Duration) Figure {
	switch unit {
	case Microseconds:
		return Figure{Name: name, Unit: unit, Value: d.Seconds() * 1e6}
	case Milliseconds:
		return Figure{Name: name, Unit: unit, Value: d.Seconds() * 1e3}
	default:
		return Figure{Name: name, Unit: Seconds, Value: d.Seconds()}
	}
}

// Row is a figure as a report shows it: the medians of all runs, and whether that is as it should be.
type Row struct {
	Part   string   `json:"part"`
	Figure string   `json:"figure"`
	Unit   string   `json:"unit"`
	Ours   *float64 `json:"ours,omitempty"`  // nil when it was not measured
	Floor  *float64 `json:"floor,omitempty"` // nil when it was not measured, or there is none
	Relay  *float64 `json:"relay,omitempty"` // the same
	Target string   `json:"target,omitempty"`
	Met    *bool    `json:"met,omitempty"` // nil without a target, and when what it needs was not measured
}

// Values are what each contender reached of one figure. What was not measured is not a number.
type Values struct {
	Ours, Floor, Relay float64
}

// Target is what a figure must reach.
type Target struct {
	Part, Figure string
	Text         string
	// Beside are the contenders, other than ours, that set the target.
	Beside []string
	Met    func(Values) bool
}

// Under is met by less than a limit.
func Under(limit float64) func(Values) bool {
	return func(v Values) bool { return v.Ours < limit }
}

// Combine makes the rows of a part of the samples of its runs, by contender, in the order in which the samples have them.
func Combine(part string, samples map[string][]Sample, targets []Target) []Row {
	var rows []Row
	for _, sample := range slices.Concat(samples[Ours], samples[Floor], samples[Relay]) {
		for _, figure := range sample {
			known := slices.ContainsFunc(rows, func(r Row) bool { return r.Figure == figure.Name })
			if known {
				continue
			}
			row := Row{
				Part: part, Figure: figure.Name, Unit: figure.Unit,
				Ours: median(samples[Ours], figure.Name), Floor: median(samples[Floor], figure.Name),
				Relay: median(samples[Relay], figure.Name),
			}
			rows = append(rows, withTarget(row, targets))
		}
	}
	return rows
}

func withTarget(row Row, targets []Target) Row {
	for _, target := range targets {
		if target.Part != row.Part || target.Figure != row.Figure {
			continue
		}
		row.Target = target.Text
		if !slices.ContainsFunc(append([]string{Ours}, target.Beside...), func(name string) bool { return row.of(name) == nil }) {
			met := target.Met(Values{Ours: value(row.Ours), Floor: value(row.Floor), Relay: value(row.Relay)})
			row.Met = &met
		}
	}
	return row
}

// of is what a contender reached.
func (r Row) of(contender string) *float64 {
	switch contender {
	case Ours:
		return r.Ours
	case Floor:
		return r.Floor
	case Relay:
		return r.Relay
	default:
		return nil
	}
}

func value(measured *float64) float64 {
	if measured == nil {
		return math.NaN()
	}
	return *measured
}

// median is that of a figure over the samples that have it; nil when none has.
func median(samples []Sample, name string) *float64 {
	var values []float64
	for _, sample := range samples {
		for _, figure := range sample {
			if figure.Name == name {
				values = append(values, figure.Value)
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	middle := (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	return &middle
}

// Percentile is the least of the times that p percent of them do not exceed; 0 when there are none.
func Percentile(times []time.Duration, p float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
