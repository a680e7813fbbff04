//go:build !race

package worlds_test

const raced = false
