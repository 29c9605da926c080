// Package contract is empty: its tests compare what this project does "as in Argo CD" with the functions of Argo CD itself, in the
// version that the lab runs.
package contract
