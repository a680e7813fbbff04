package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

func TestOpenAPI_IsValidWithItsExamples(t *testing.T) {
	doc := contract(t)
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
}

func TestOpenAPI_HasTheRoutersOperations(t *testing.T) {
	var routed, documented []string
	routers := []chi.Router{
		newServer(Options{}).all(),
		(&operations{errorWriter: newErrorWriter(nil), OperationsOptions: OperationsOptions{Metrics: http.NotFoundHandler()}}).routes(),
	}
	for _, router := range routers {
		err := chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			routed = append(routed, method+" "+route)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, item := range contract(t).Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(routed)
	slices.Sort(documented)
	if diff := cmp.Diff(documented, routed); diff != "" {
		t.Errorf("document and router differ (-document +router):\n%s", diff)
	}
	if len(routed) < 26 {
		t.Errorf("only %d routes were walked", len(routed))
	}
}

func TestOpenAPI_CallerOperationsRequireBearerToken(t *testing.T) {
	for path, item := range contract(t).Paths.Map() {
		for method, operation := range item.Operations() {
			named := operation.Security != nil && len(*operation.Security) == 1 && (*operation.Security)[0]["bearer"] != nil
			wanted := strings.HasPrefix(path, "/v1/reminders") || strings.HasPrefix(path, "/v1/admin/")
			if named != wanted {
				t.Errorf("%s %s: names the bearer token: %v", method, path, named)
			}
		}
	}
}

func TestOpenAPI_HasTheCodesOfTheProblemTable(t *testing.T) {
	var table []string
	for _, p := range problems {
		table = append(table, string(p.code))
	}
	slices.Sort(table)
	if diff := cmp.Diff(words(contract(t), "Problem", "code"), slices.Compact(table)); diff != "" {
		t.Errorf("(-document +table):\n%s", diff)
	}
}

func TestOpenAPI_HasTheLedgersEnums(t *testing.T) {
	doc := contract(t)
	for _, c := range []struct {
		schema, member string
		want           []string
	}{
		{"State", "", constants(t, "entry.go", "State")},
		{"Class", "", constants(t, "entry.go", "Class")},
		{"Entry", "receipt_missing", constants(t, "entry.go", "ReceiptMissing")},
		{"Entry", "owner", constants(t, "entry.go", "Owner")},
		{"TimelineEvent", "kind", constants(t, "change.go", "EventKind")},
		{"TimelineEvent", "outcome", resultWords()},
		{"Cancelled", "result", constants(t, "delivery.go", "CancelResult")},
		{"Resolution", "verdict", constants(t, "resolve.go", "Verdict")},
		{"StatusEvent", "status", constants(t, "status.go", "StatusKind")},
		{"Redrive", "state", constants(t, "redrive_types.go", "RedriveState")},
		{"RedriveItem", "result", append(constants(t, "redrive.go", "SkipReason"), ledger.ItemRedriven, ledger.ItemReparsed)},
		{"RedriveFilter", "class", deadClasses()},
		{"Contract", "kind", []string{ledger.ContractBlind.String(), ledger.ContractIdempotent.String(), ledger.ContractLookup.String()}},
	} {
		slices.Sort(c.want)
		if diff := cmp.Diff(words(doc, c.schema, c.member), c.want); diff != "" {
			t.Errorf("%s %s (-document +ledger):\n%s", c.schema, c.member, diff)
		}
	}
}

func TestEntries_FilterAcceptsEveryClass(t *testing.T) {
	for _, class := range constants(t, "entry.go", "Class") {
		var q ledger.Query
		if problem := filters["class"](&q, class); problem != "" || string(q.Class) != class {
			t.Errorf("%s: %s", class, problem)
		}
	}
}

func TestEventText_HasTextForEveryReasonStateStatusAndResult(t *testing.T) {
	for _, word := range constants(t, "entry.go", "Reason") {
		if reasonTexts[ledger.Reason(word)] == "" {
			t.Errorf("reason %s has no text", word)
		}
	}
	for _, state := range ledger.States() {
		if stateTexts[state] == "" {
			t.Errorf("state %s has no text", state)
		}
	}
	for _, kind := range ledger.StatusKinds() {
		if statusTexts[kind] == "" {
			t.Errorf("status %s has no text", kind)
		}
	}
	for _, result := range ledger.Results() {
		if resultTexts[result] == "" {
			t.Errorf("result %s has no text", result)
		}
	}
}

func TestReminders_GrammarsMatchPackageReminder(t *testing.T) {
	for _, text := range []string{
		"a", "A", "1a", "a1", "a_b.c-d", "a b", "a/b", "ä", "", "a\x00", "a\n", "~", "!", "a!",
		strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 255), strings.Repeat("a", 256),
	} {
		quoted := strconv.Quote(text)
		id := `{"reminder_id":` + quoted + `,"type":"t","channel":"c","to":"x","content":{"a":1}}`
		if _, err := reminder.Parse([]byte(id)); (err == nil) != idGrammar.MatchString(text) {
			t.Errorf("id %q: package reminder says %v", text, err)
		}
		word := `{"reminder_id":"r","type":` + quoted + `,"channel":` + quoted + `,"to":"x","content":{"a":1}}`
		if _, err := reminder.Parse([]byte(word)); (err == nil) != wordGrammar.MatchString(text) {
			t.Errorf("word %q: package reminder says %v", text, err)
		}
	}
}

func TestOpenAPI_HasEveryMemberOfAReminder(t *testing.T) {
	var documented []string
	for name := range contract(t).Components.Schemas["Reminder"].Value.Properties {
		documented = append(documented, name)
		// A member that package reminder does not know is a fault under its own name.
		_, err := reminder.Parse([]byte(`{"` + name + `": 1}`))
		faults, _ := err.(reminder.Faults)
		for _, fault := range faults {
			if fault.Field == name && strings.Contains(fault.Problem, "not a member") {
				t.Errorf("package reminder does not know %s", name)
			}
		}
	}
	if fields := reflect.TypeFor[reminder.Reminder]().NumField(); fields != len(documented) {
		t.Errorf("a reminder has %d fields, openapi.yaml %d", fields, len(documented))
	}
}

// words returns the sorted enum of a schema or of its member.
func words(doc *openapi3.T, schema, member string) []string {
	s := doc.Components.Schemas[schema].Value
	if member != "" {
		s = s.Properties[member].Value
	}
	var all []string
	for _, word := range s.Enum {
		all = append(all, word.(string))
	}
	slices.Sort(all)
	return all
}

func deadClasses() []string {
	var all []string
	for _, class := range ledger.DeadClasses() {
		all = append(all, string(class))
	}
	return all
}

func resultWords() []string {
	var all []string
	for _, r := range ledger.Results() {
		all = append(all, r.String())
	}
	return all
}

// constants returns the values of the ledger's constants of a type, from its source: Go has no list of them.
func constants(t *testing.T, file, typ string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../internal/ledger/"+file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typ {
			for _, value := range spec.Values {
				if literal, ok := value.(*ast.BasicLit); ok {
					word, _ := strconv.Unquote(literal.Value)
					all = append(all, word)
				}
			}
		}
		return true
	})
	if len(all) == 0 {
		t.Fatalf("no constants of type %s in %s", typ, file)
	}
	return all
}
