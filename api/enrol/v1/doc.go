// Package enrolv1 is the generated code of enrol.proto: how agents get certificates.
package enrolv1
