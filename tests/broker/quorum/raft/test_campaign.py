from tests.broker.quorum.raft.member_world import voters
from tidemill.broker.quorum.raft.campaign import Campaign


def test_a_majority_wins_and_a_majority_loses() -> None:
    five = voters(1, 2, 3, 4, 5)
    campaign = Campaign(pre_vote=True, granted=(1,))
    campaign.count(2, True)
    campaign.count(3, False)
    campaign.count(4, False)
    assert not campaign.is_won(five)
    assert not campaign.is_hopeless(five)
    assert not campaign.has_answered(5)
    campaign.count(5, True)
    assert campaign.is_won(five)


def test_the_first_answer_counts() -> None:
    three = voters(1, 2, 3)
    campaign = Campaign(pre_vote=False, granted=(1,))
    campaign.count(2, False)
    campaign.count(2, True)
    assert not campaign.is_won(three)
    assert not campaign.is_hopeless(three)
    campaign.count(3, False)
    assert campaign.is_hopeless(three)


def test_who_is_no_voter_does_not_count() -> None:
    campaign = Campaign(pre_vote=False, granted=())
    campaign.count(9, True)
    campaign.count(8, True)
    assert not campaign.is_won(voters(1, 2, 3))
    assert Campaign(pre_vote=False, granted=(1,)).is_won(voters(1))
