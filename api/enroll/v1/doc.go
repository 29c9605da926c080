// Package enrollv1 is the generated code of enroll.proto: how agents get certificates.
package enrollv1
