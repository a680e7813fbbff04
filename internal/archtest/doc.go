// Package archtest tests the architecture of the repository: which package may import which, and what no package may
// do.
//
// Each rule is a function over a source tree, so it is run on the real tree and on small artificial ones that violate
// it: a rule that rejects nothing is not a rule. The table [allowedImports] holds every package that may exist, whether
// or not it exists yet.
//
// What it does not do: it does not load dependencies or check style; vet, staticcheck and gofumpt do.
package archtest
