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
	Milliseconds = "ms"
	Seconds      = "s"
	PerSecond    = "/s"
	Megabytes    = "MB" // a million bytes
	Kilobytes    = "kB" // a thousand bytes
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
	if unit == Milliseconds {
		return Figure{Name: name, Unit: unit, Value: d.Seconds() * 1000}
	}
	return Figure{Name: name, Unit: Seconds, Value: d.Seconds()}
}

// Row is a figure as a report shows it: the medians of all runs, and whether that is as it should be.
type Row struct {
	Part   string   `json:"part"`
	Figure string   `json:"figure"`
	Unit   string   `json:"unit"`
	Ours   *float64 `json:"ours,omitempty"`  // nil when it was not measured
	Floor  *float64 `json:"floor,omitempty"` // nil when it was not measured, or there is none
	Target string   `json:"target,omitempty"`
	Met    *bool    `json:"met,omitempty"` // nil without a target, and when what it needs was not measured
}

// Target is what a figure must reach.
type Target struct {
	Part, Figure string
	Text         string
	// Beside tells that the target is set by the floor.
	Beside bool
	Met    func(ours, floor float64) bool
}

// Combine makes the rows of a part of the samples of its runs, in the order in which the samples have them.
func Combine(part string, ours, floor []Sample, targets []Target) []Row {
	var rows []Row
	for _, sample := range slices.Concat(ours, floor) {
		for _, figure := range sample {
			known := slices.ContainsFunc(rows, func(r Row) bool { return r.Figure == figure.Name })
			if known {
				continue
			}
			row := Row{
				Part: part, Figure: figure.Name, Unit: figure.Unit,
				Ours: median(ours, figure.Name), Floor: median(floor, figure.Name),
			}
			rows = append(rows, judged(row, targets))
		}
	}
	return rows
}

func judged(row Row, targets []Target) Row {
	for _, target := range targets {
		if target.Part != row.Part || target.Figure != row.Figure {
			continue
		}
		row.Target = target.Text
		if row.Ours == nil || (target.Beside && row.Floor == nil) {
			continue
		}
		floor := math.NaN()
		if row.Floor != nil {
			floor = *row.Floor
		}
		met := target.Met(*row.Ours, floor)
		row.Met = &met
	}
	return row
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
